package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/access"
)

type checkCmd struct {
	Paths     []string `arg:"" name:"path" help:"Files or directories of rules, loaded together as serve would; - is standard input."`
	Strict    bool     `help:"Fail on warnings too."`
	Quiet     bool     `short:"q" help:"Print errors and warnings only."`
	All       bool     `help:"Print each limit and each warning, however many there are. Default: if there are many, how many of each kind."`
	Output    string   `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Text for people, or JSON for programs."`
	Watch     bool     `short:"w" help:"Check again whenever the files change, until a signal comes."`
	ruleFlags `embed:""`
	Names     string   `name:"store-names" enum:"exact,ratelimit," default:"" placeholder:"exact|ratelimit" help:"Say which name counters have in a store with serve --store-names, and why."`
	Allow     []string `name:"grpc-allow" sep:"none" placeholder:"NAME=DOMAIN,..." help:"Warn of domains that serve --grpc-allow would name without a rule, or grant to nobody."`

	allow *access.AllowList
}

// checkReport is what check --output json prints.
type checkReport struct {
	OK          bool         `json:"ok"`
	Hash        string       `json:"hash,omitempty"`
	Domains     []string     `json:"domains"`
	Limits      []checkLimit `json:"limits"`
	Diagnostics []checkLine  `json:"diagnostics"`
}

type checkLimit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Shadow bool   `json:"shadow,omitempty"`
	Bytes  int    `json:"bytes_per_counter"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	// With --store-names:
	StoreName    string `json:"store_name,omitempty"`
	StoreNameOf  string `json:"store_name_of,omitempty"`
	StoreNameWhy string `json:"store_name_why,omitempty"`
}

type checkLine struct {
	Severity string `json:"severity"`
	Code     string `json:"code,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

// Validate checks what the types do not.
func (k *checkCmd) Validate() (err error) {
	for _, path := range k.Paths {
		if k.Watch && isStream(path) {
			return fmt.Errorf("--watch cannot follow %s: it is read once", path)
		}
	}
	k.ratelimitNames = k.Names == ratelimitNames
	k.allow, err = allowList(k.Allow)
	return err
}

// Run checks the rules.
func (k *checkCmd) Run(ctx context.Context, c console) error {
	if k.Watch {
		return k.follow(ctx, c)
	}
	set, diagnostics, err := k.load(c, k.Paths)
	return k.report(c, set, diagnostics, err)
}

// follow checks the rules now and whenever they change. It returns what the last check did.
func (k *checkCmd) follow(ctx context.Context, c console) (last error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	files := source.NewFiles(source.Options{
		Paths: k.Paths, Defaults: k.Defaults, Options: k.options(),
		OnLoad: func(u source.Update) error {
			err := u.Err
			if len(u.Diagnostics) > 0 {
				err = nil // they have it
			}
			last = k.report(c, u.Set, u.Diagnostics, err)
			return u.Err
		},
		OnUnwatched: func(err error) {
			fmt.Fprintf(c.err, "files cannot be watched and are read each second instead: %v\n", err)
		},
	})
	_ = files.Load() // it has been reported
	files.Run(ctx)
	return last
}

// report prints what was found in the rules, or why there are none. It returns errFailed if the
// check fails.
func (k *checkCmd) report(c console, set *descriptors.Set, diagnostics rules.Diagnostics, err error) error {
	if err != nil { // the JSON has it among the other findings
		diagnostics = rules.Diagnostics{{Severity: rules.Error, Message: err.Error()}}
	}
	if set != nil {
		diagnostics = append(diagnostics, descriptors.Advice(set, k.Names != "")...)
		for _, odd := range adviseAllow(k.allow, set.Domains()) {
			diagnostics = append(diagnostics, rules.Diagnostic{Severity: rules.Warning, Code: rules.GRPCAllow, Message: odd})
		}
	}
	wrong, warnings := countFindings(diagnostics, func(d rules.Diagnostic) rules.Severity { return d.Severity })
	failed := wrong > 0 || k.Strict && warnings > 0
	if k.Output == "json" {
		err = c.writeJSON(k.reportOf(set, diagnostics, !failed))
	} else {
		err = nil
		k.writeFindings(c, set, diagnostics, wrong, warnings)
		if failed && wrong == 0 {
			fmt.Fprintln(c.out, "failed: --strict allows no warnings")
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
		fmt.Fprintf(c.out, "%s, %s: these rules do not load\n", count(errors, "error"), count(warnings, "warning"))
	case !k.Quiet:
		k.writeLimits(c, set)
		fmt.Fprintf(c.out, "%s, %s, %s: hash %s\n",
			count(len(set.Domains()), "domain"), count(len(set.Limits), "limit"), count(warnings, "warning"), set.Hash)
	}
}

// countFindings counts the errors and warnings among what check or envoy check found, but no
// notes.
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

// ruleFlags are flags that check and explain share with serve, and with its variables.
type ruleFlags struct {
	Defaults     string `placeholder:"FILE" help:"As serve --defaults."`
	MergeDomains bool   `help:"Merge files of one domain, as serve --merge-domains does."`
	AllOrNothing bool   `help:"As serve --all-or-nothing."`

	// hashKey is what counters' identities are hashed with.
	hashKey identity.Key
	// ratelimitNames says to find out which names counters have: see [descriptors.Options].
	ratelimitNames bool
}

// sharedVariables are the flags of ruleFlags that variables set.
var sharedVariables = []string{"merge-domains", "all-or-nothing"}

// BeforeResolve has the environment set them.
func (*ruleFlags) BeforeResolve(ctx *kong.Context) error {
	_, err := environment.Resolve(ctx, sharedVariables)
	return err
}

// load reads rules that may be streams too: - is standard input, and /dev/fd/N what
// a shell's <(command) is. They are read once, so that serve cannot have them.
func (f *ruleFlags) load(c console, paths []string) (*descriptors.Set, rules.Diagnostics, error) {
	var files []string
	var streams []source.File
	for _, path := range paths {
		var stream source.File
		var err error
		switch {
		case !isStream(path):
			files = append(files, path)
			continue
		case strings.HasPrefix(path, descriptorDir):
			stream, err = readOpen(path)
		default:
			stream, err = source.ReadStream("stdin", c.in)
		}
		if err != nil {
			return nil, nil, err
		}
		streams = append(streams, stream)
	}
	return source.Load(files, f.Defaults, f.options(), streams...)
}

func (f *ruleFlags) options() descriptors.Options {
	return descriptors.Options{MergeDomains: f.MergeDomains, AllOrNothing: f.AllOrNothing, HashKey: f.hashKey, RatelimitNames: f.ratelimitNames}
}

// descriptorDir has the open files of a process, such as those of a shell's <(command).
const descriptorDir = "/dev/fd/"

// isStream reports whether a path can be read only once.
func isStream(path string) bool {
	return path == "-" || path == "/dev/stdin" || strings.HasPrefix(path, descriptorDir)
}

func readOpen(path string) (source.File, error) {
	f, err := os.Open(path) //nolint:gosec // reading what the operator names is the point
	if err != nil {
		return source.File{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	return source.ReadStream(path, f)
}

// count writes 1 limit or 2 limits.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// reportOf returns what --output json prints.
func (k *checkCmd) reportOf(set *descriptors.Set, diagnostics rules.Diagnostics, ok bool) checkReport {
	r := checkReport{OK: ok, Domains: []string{}, Limits: []checkLimit{}, Diagnostics: []checkLine{}}
	if set != nil {
		r.Hash, r.Domains = set.Hash, append(r.Domains, set.Domains()...)
		for _, l := range set.Limits {
			limit := checkLimit{
				Domain: l.Rule.Domain(), Rule: l.Rule.Path(), Limit: l.String(), Shadow: l.Candidate, Bytes: counterBytes(l), File: l.Pos.File, Line: l.Pos.Line,
			}
			if k.Names != "" && !l.Rule.Unlimited {
				name := set.StoreName(l)
				limit.StoreName, limit.StoreNameOf, limit.StoreNameWhy = name.Text, exactNames, name.Why
				if name.Ratelimit {
					limit.StoreNameOf = ratelimitNames
				}
			}
			r.Limits = append(r.Limits, limit)
		}
	}
	for _, d := range diagnostics {
		r.Diagnostics = append(r.Diagnostics, checkLine{d.Severity.String(), string(d.Code), d.Pos.File, d.Pos.Line, d.Pos.Col, d.Path, d.Message})
	}
	return r
}
