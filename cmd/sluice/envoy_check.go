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

	SoftHeader string `type:"soft-header" placeholder:"NAME" help:"Name in serve --soft-header. Default: x-ratelimit-soft."`
}

// envoyReport is the output of envoy check --output json.
type envoyReport struct {
	OK       bool      `json:"ok"`
	Findings []finding `json:"findings"`
	// Limits is the statement: what each descriptor of the routes limits.
	Limits []envoyLimit `json:"limits"`
}

// envoyLimit is a row of the statement.
type envoyLimit struct {
	Route      string      `json:"route,omitempty"`  // the first route that sends the descriptor
	Routes     int         `json:"routes,omitempty"` // the number of all
	Domain     string      `json:"domain,omitempty"`
	File       string      `json:"file,omitempty"`
	Line       int         `json:"line,omitempty"`
	Column     int         `json:"column,omitempty"`
	Entries    string      `json:"entries,omitempty"`
	Rules      []envoyRule `json:"rules"`
	Asked      string      `json:"asked"` // start, end or never
	Why        string      `json:"why,omitempty"`
	Hits       string      `json:"hits,omitempty"`
	Charged    int         `json:"charged"` // how often one request charges each counter
	Conditions []string    `json:"conditions"`
}

// envoyRule is a rule that a descriptor reaches.
type envoyRule struct {
	Path     string   `json:"path"`
	Limits   []string `json:"limits"`
	Enforces bool     `json:"enforces"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
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
	config.SoftHeader = k.SoftHeader
	findings, statement := config.Verify(set)
	errors, warnings := countFindings(findings, func(f envoyconfig.Finding) rules.Severity { return f.Severity })
	failed := errors > 0 || k.Strict && warnings > 0
	switch r := envoyReportOf(findings, statement, !failed); {
	case isAnnotationFormat(k.Output):
		err = c.writeAnnotations(k.Output, r.Findings)
	case k.Output == "json":
		err = c.writeJSON(r)
	default:
		k.writeText(c, findings, statement, errors, warnings, failed)
	}
	if err == nil && failed {
		return errFailed
	}
	return err
}

func (k *envoyCheckCmd) writeText(
	c console, findings []envoyconfig.Finding, statement *envoyconfig.Statement, errors, warnings int, failed bool,
) {
	for _, f := range findings {
		if k.Quiet && f.Severity == rules.Note {
			continue
		}
		fmt.Fprintln(c.out, format.Escape(f.String()))
	}
	if !k.Quiet {
		writeStatement(c, statement)
		fmt.Fprintf(c.out, "%s, %s\n", rules.Count(errors, "error"), rules.Count(warnings, "warning"))
	}
	if failed && errors == 0 {
		fmt.Fprintln(c.err, "failed: there are warnings, and --strict is set")
	}
}

// writeStatement writes what the configuration limits.
func writeStatement(c console, statement *envoyconfig.Statement) {
	const most = 50 // rows; JSON has all
	for i, row := range statement.Rows {
		if i == most {
			fmt.Fprintf(c.out, "and %s: see --output json\n", rules.Count(len(statement.Rows)-most, "further line"))
			break
		}
		fmt.Fprintln(c.out, row)
	}
}

func envoyReportOf(findings []envoyconfig.Finding, statement *envoyconfig.Statement, ok bool) envoyReport {
	r := envoyReport{OK: ok, Findings: []finding{}, Limits: []envoyLimit{}}
	for _, row := range statement.Rows {
		l := envoyLimit{
			Route: row.Route, Routes: row.Routes, Domain: row.Domain, File: row.Pos.File, Line: row.Pos.Line, Column: row.Pos.Col, Entries: row.Entries, Rules: []envoyRule{},
			Asked: row.Asked, Why: row.Why, Hits: row.Hits, Charged: row.Charged, Conditions: append([]string{}, row.Conditions...),
		}
		for _, rule := range row.Rules {
			one := envoyRule{
				Path: rule.Path(), Limits: []string{}, Enforces: envoyconfig.Enforces(rule), File: rule.Pos().File, Line: rule.Pos().Line,
			}
			for _, limit := range rule.Limits {
				one.Limits = append(one.Limits, limit.String())
			}
			l.Rules = append(l.Rules, one)
		}
		r.Limits = append(r.Limits, l)
	}
	for _, f := range findings {
		r.Findings = append(r.Findings, finding{
			Severity: f.Severity.String(), Code: string(f.Code), File: f.Pos.File, Line: f.Pos.Line, Column: f.Pos.Col, Message: f.Message,
		})
	}
	return r
}
