package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
)

type checkCmd struct {
	Paths     []string `arg:"" optional:"" name:"path" help:"More rule files or directories, such as those of a pre-commit hook."`
	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file, directory of rule files, or ConfigMap with rules, loaded together as by serve. - is standard input. May be repeated. Default: ./config."`
	Strict    bool     `help:"Exit with an error if there are warnings."`
	Quiet     bool     `short:"q" help:"Print only errors and warnings."`
	All       bool     `help:"Print every limit and every warning. Default: the first ones if there are many."`
	Output    string   `enum:"text,json,github,sarif" default:"text" placeholder:"FORMAT" short:"o" help:"Output format: text, json, github (annotations of GitHub Actions) or sarif (code scanners)."`
	ruleFlags `embed:""`
	Names     string   `name:"store-names" enum:"exact,ratelimit," default:"" placeholder:"exact|ratelimit" help:"Print the name of each counter in the store with this serve --store-names, and the reason for it."`
	Allow     []string `name:"grpc-allow" sep:"none" placeholder:"NAME=DOMAIN,..." help:"Warn about domains in serve --grpc-allow that have no rules, and about domains that it grants to no client."`

	allow *access.AllowList
}

// checkReport is the output of check --output json.
type checkReport struct {
	OK          bool         `json:"ok"`
	Hash        string       `json:"hash,omitempty"`
	Domains     []string     `json:"domains"`
	Limits      []checkLimit `json:"limits"`
	Diagnostics []finding    `json:"diagnostics"`
}

type checkLimit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Shadow bool   `json:"shadow,omitempty"`
	Soft   bool   `json:"soft,omitempty"`
	Bytes  int    `json:"bytes_per_counter"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	// Set with --store-names.
	StoreName    string `json:"store_name,omitempty"`
	StoreNameOf  string `json:"store_name_of,omitempty"`
	StoreNameWhy string `json:"store_name_why,omitempty"`
}

type finding struct {
	Severity string `json:"severity"`
	Code     string `json:"code,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

func (k *checkCmd) Validate() (err error) {
	if k.Paths = append(k.Config, k.Paths...); len(k.Paths) == 0 {
		k.Paths = []string{"./config"}
	}
	k.ratelimitNames = k.Names == ratelimitNames
	k.allow, err = allowList(k.Allow)
	return err
}

func (k *checkCmd) Run(c console) error {
	set, diagnostics, err := k.load(c, k.Paths)
	if !errors.Is(err, source.ErrNoFile) { // check has no --allow-empty
		err = ruleset.RulesError(err, k.Defaults)
	}
	return k.report(c, set, diagnostics, err)
}

// report prints the findings, or err if the rules could not be read. It returns errFailed if the
// check fails.
func (k *checkCmd) report(c console, set *descriptors.Set, diagnostics rules.Diagnostics, err error) error {
	if err != nil { // make it a finding, so that every output format contains it
		diagnostics = rules.Diagnostics{{Severity: rules.Error, Message: err.Error()}}
	}
	if set != nil {
		diagnostics = append(diagnostics, descriptors.Advice(set, k.Names != "")...)
		for _, advice := range ruleset.AllowListAdvice(k.allow, set.Domains()) {
			diagnostics = append(diagnostics,
				rules.Diagnostic{Severity: rules.Warning, Code: rules.GRPCAllow, Message: advice})
		}
	}
	errorCount, warnings := countFindings(diagnostics, func(d rules.Diagnostic) rules.Severity { return d.Severity })
	failed := errorCount > 0 || k.Strict && warnings > 0
	switch {
	case isAnnotationFormat(k.Output):
		err = c.writeAnnotations(k.Output, k.reportOf(set, diagnostics, !failed).Diagnostics)
	case k.Output == "json":
		err = c.writeJSON(k.reportOf(set, diagnostics, !failed))
	default:
		err = nil
		k.writeFindings(c, set, diagnostics, errorCount, warnings)
		if failed && errorCount == 0 {
			fmt.Fprintln(c.err, "failed: there are warnings, and --strict is set")
		}
	}
	if err == nil && failed {
		return errFailed
	}
	return err
}

func (k *checkCmd) writeFindings(c console, set *descriptors.Set, diagnostics rules.Diagnostics, errors, warnings int) {
	k.writeDiagnostics(c, diagnostics)
	switch {
	case set == nil:
		fmt.Fprintf(c.out, "%s, %s: serve would reject these rules\n", rules.Count(errors, "error"),
			rules.Count(warnings, "warning"))
	case !k.Quiet:
		k.writeLimits(c, set)
		fmt.Fprintf(c.out, "%s, %s, %s: hash %s\n",
			rules.Count(len(set.Domains()), "domain"), rules.Count(len(set.Limits), "limit"),
			rules.Count(warnings, "warning"), set.Hash)
	}
}

// countFindings counts the errors and warnings among the findings.
func countFindings[F any](findings []F, severity func(F) rules.Severity) (errors, warnings int) {
	for _, f := range findings {
		switch severity(f) {
		case rules.Error:
			errors++
		case rules.Warning:
			warnings++
		default:
		}
	}
	return errors, warnings
}

func (k *checkCmd) reportOf(set *descriptors.Set, diagnostics rules.Diagnostics, ok bool) checkReport {
	r := checkReport{OK: ok, Domains: []string{}, Limits: []checkLimit{}, Diagnostics: []finding{}}
	if set != nil {
		r.Hash = set.Hash
		r.Domains = append(r.Domains, set.Domains()...)
		for _, l := range set.Limits {
			limit := checkLimit{
				Domain: l.Rule.Domain(), Rule: l.Rule.Path(), Limit: l.String(), Shadow: l.Candidate && !l.Soft, Soft: l.Soft, Bytes: counterBytes(l), File: l.Pos.File, Line: l.Pos.Line,
			}
			if k.Names != "" && !l.Rule.Unlimited {
				name := set.StoreName(l)
				limit.StoreName = name.Text
				limit.StoreNameOf = exactNames
				limit.StoreNameWhy = name.Why
				if name.Ratelimit {
					limit.StoreNameOf = ratelimitNames
				}
			}
			r.Limits = append(r.Limits, limit)
		}
	}
	for _, d := range diagnostics {
		r.Diagnostics = append(r.Diagnostics,
			finding{d.Severity.String(), string(d.Code), d.Pos.File, d.Pos.Line, d.Pos.Col, d.Path, d.Message})
	}
	return r
}

// writeDiagnostics writes all errors and notes, and the first few warnings of each code.
func (k *checkCmd) writeDiagnostics(c console, diagnostics rules.Diagnostics) {
	const maxShown = 20
	seen := map[rules.Code]int{}
	for _, d := range diagnostics {
		if k.Quiet && d.Severity == rules.Note {
			continue
		}
		if d.Code != "" {
			if seen[d.Code]++; seen[d.Code] > maxShown && !k.All {
				continue
			}
		}
		if d.Severity == rules.Error && d.Pos == (rules.Pos{}) {
			fmt.Fprintln(c.err, d) // about a file that could not be read
			continue
		}
		fmt.Fprintln(c.out, format.Escape(d.String()))
	}
	for _, code := range slices.Sorted(maps.Keys(seen)) {
		if more := seen[code] - maxShown; more > 0 && !k.All {
			fmt.Fprintf(c.out, "warning: %s: %s; use --all to print them\n", code, rules.Count(more, "more warning"))
		}
	}
}

// writeLimits writes each limit, or the first ones.
func (k *checkCmd) writeLimits(c console, set *descriptors.Set) {
	const maxLines = 100
	for i, l := range set.Limits {
		if i == maxLines && !k.All {
			fmt.Fprintf(c.out, "%s; use --all to print them\n", rules.Count(len(set.Limits)-maxLines, "more limit"))
			break
		}
		line := fmt.Sprintf("%s > %s: %s%s%s", l.Rule.Domain(), l.Rule.Path(), l, limitNotes(l), k.nameNote(set, l))
		fmt.Fprintln(c.out, format.Escape(line))
	}
}

// limitNotes describes a limit apart from its rate.
func limitNotes(l *descriptors.Limit) string {
	notes := ""
	if l.Rule.Shadow {
		notes += ", shadow_mode: true"
	}
	if l.Candidate && !l.Soft {
		notes += ", shadow: true"
	}
	if l.Rule.Quota {
		notes += ", quota_mode: true"
	}
	if c := l.Policy.Calendar; c != nil {
		_, end := c.Window(limiter.Time(time.Now().UnixNano()))
		notes += fmt.Sprintf(", window ends %s %s", time.Unix(0, int64(end)).In(c.Zone()).Format("2006-01-02T15:04"),
			c.Zone())
	}
	if n := counterBytes(l); n > 0 {
		notes += fmt.Sprintf(", %d bytes per counter", n)
	}
	return notes
}

// nameNote returns the name of the counters of l in a store, and the reason for it, if
// --store-names is set.
func (k *checkCmd) nameNote(set *descriptors.Set, l *descriptors.Limit) string {
	if k.Names == "" || l.Rule.Unlimited {
		return ""
	}
	name := set.StoreName(l)
	note := ", name " + name.Text
	if name.Why != "" {
		note += ": " + name.Why
	}
	return note
}

// counterBytes returns the memory of each counter of l. An unlimited rule has none.
func counterBytes(l *descriptors.Limit) int {
	if l.Rule.Unlimited {
		return 0
	}
	return limiter.CounterBytes(l.Policy)
}
