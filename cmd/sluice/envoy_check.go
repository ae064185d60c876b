package main

import (
	"errors"
	"fmt"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

type envoyCheckCmd struct {
	Envoy     []string `arg:"" help:"Envoy configuration: a bootstrap, xDS resources, the output of /config_dump, or EnvoyFilters of Istio, complete or in excerpts. Several files form one configuration. - is standard input."`
	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Strict    bool     `help:"Exit with an error if there are warnings."`
	Quiet     bool     `short:"q" help:"Print only errors and warnings."`
	Output    string   `enum:"text,json,github,sarif" default:"text" placeholder:"FORMAT" short:"o" help:"Output format: text, json, github (annotations of GitHub Actions) or sarif (code scanners)."`
	ruleFlags `embed:""`

	// These are flags of serve.

	SoftHeader       string `type:"soft-header" placeholder:"NAME" help:"Name in serve --soft-header. Default: x-ratelimit-soft."`
	RateLimitHeaders string `name:"ratelimit-headers" enum:"none,legacy,structured" default:"none" placeholder:"none|legacy|structured" help:"Value of serve --ratelimit-headers; legacy also stands for --response-headers. Warns if Envoy adds headers with limits, too."`
	DeniedResponse   string `enum:"none,text,problem,openai,anthropic" default:"none" placeholder:"none|text|problem|openai|anthropic" help:"Value of serve --denied-response. Checks that clients receive it unchanged."`
}

// envoyReport is the output of envoy check --output json.
type envoyReport struct {
	OK       bool      `json:"ok"`
	Findings []finding `json:"findings"`
}

func (k *envoyCheckCmd) Validate() error { return checkStdinOnce(k.Envoy, k.Config) }

func (k *envoyCheckCmd) Run(c console) error {
	err := k.run(c)
	if err == nil || errors.Is(err, errFailed) || !isAnnotationFormat(k.Output) {
		return err
	}
	if err := c.writeAnnotations(k.Output, findingsOf(err)); err != nil {
		return err
	}
	return errFailed
}

func (k *envoyCheckCmd) run(c console) error {
	set, err := k.loadValid(c, k.Config)
	if err != nil {
		return err
	}
	config, err := readEnvoy(c, k.Envoy)
	if err != nil {
		return err
	}
	config.AddsLimitHeaders, config.DeniedResponse, config.SoftHeader = k.RateLimitHeaders != "none", k.DeniedResponse, k.SoftHeader
	findings := config.Check(set)
	errors, warnings := countFindings(findings, func(f envoyconfig.Finding) rules.Severity { return f.Severity })
	failed := errors > 0 || k.Strict && warnings > 0
	switch r := envoyReportOf(findings, !failed); {
	case isAnnotationFormat(k.Output):
		err = c.writeAnnotations(k.Output, r.Findings)
	case k.Output == "json":
		err = c.writeJSON(r)
	default:
		k.writeText(c, findings, errors, warnings, failed)
	}
	if err == nil && failed {
		return errFailed
	}
	return err
}

func (k *envoyCheckCmd) writeText(c console, findings []envoyconfig.Finding, errors, warnings int, failed bool) {
	for _, f := range findings {
		if k.Quiet && f.Severity == rules.Note {
			continue
		}
		fmt.Fprintln(c.out, c.colourSeverity(f.Severity, format.Escape(f.String())))
	}
	if !k.Quiet {
		fmt.Fprintf(c.out, "%s, %s\n", rules.Count(errors, "error"), rules.Count(warnings, "warning"))
	}
	if failed && errors == 0 {
		fmt.Fprintln(c.err, "failed: there are warnings, and --strict is set")
	}
}

func envoyReportOf(findings []envoyconfig.Finding, ok bool) envoyReport {
	r := envoyReport{OK: ok, Findings: []finding{}}
	for _, f := range findings {
		r.Findings = append(r.Findings, finding{Severity: f.Severity.String(), Code: string(f.Code), File: f.Pos.File, Line: f.Pos.Line, Column: f.Pos.Col, Message: f.Message})
	}
	return r
}
