package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// What make sets at build time, as in -ldflags "-X main.release=v1.2.3": the
// release, the commit and its date. go build does without; see [buildOf].
var release, revision, commitDate string

// version returns the release, or the commit that was built.
func version() string { return thisBuild().Version }

// thisBuild says what this program was built from.
func thisBuild() telemetry.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return buildOf(telemetry.Build{Version: release, Revision: revision, CommitDate: commitDate}, info)
}

// buildOf fills what was not stamped from what go build recorded.
func buildOf(stamped telemetry.Build, info *debug.BuildInfo) telemetry.Build {
	recorded := make(map[string]string)
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	b := stamped
	b.Revision = cmp.Or(b.Revision, recorded["vcs.revision"])
	b.CommitDate = cmp.Or(b.CommitDate, recorded["vcs.time"])
	modified := ""
	if recorded["vcs.modified"] == "true" {
		modified = " (modified)"
	}
	switch {
	case b.Version != "":
	case b.Revision != "":
		b.Version = b.Revision + modified
	default:
		b.Version = cmp.Or(info.Main.Version, "unknown")
	}
	return b
}

// printVersion is a flag that prints the version instead of anything else.
type printVersion bool

// BeforeReset implements a hook of Kong, which runs before flags are checked.
func (printVersion) BeforeReset(app *kong.Kong, c console) error {
	if err := (versionCmd{}).Run(c); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

// IsBool says that no value follows.
func (printVersion) IsBool() bool { return true }

type versionCmd struct {
	Output string `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Default text."`
}

// versionReport is what version --output json prints.
type versionReport struct {
	Version    string `json:"version"`
	Revision   string `json:"revision"`
	CommitDate string `json:"commit_date"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// Run prints the version.
func (v versionCmd) Run(c console) error {
	b := thisBuild()
	r := versionReport{b.Version, b.Revision, b.CommitDate, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if v.Output == "json" {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	commit := ""
	if r.Revision != "" {
		commit = fmt.Sprintf(" (commit %s of %s)", r.Revision, cmp.Or(r.CommitDate, "unknown date"))
	}
	_, err := fmt.Fprintf(c.out, "sluice %s%s %s %s\n", r.Version, commit, r.Go, r.Platform)
	return err
}
