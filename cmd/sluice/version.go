package main

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// release, revision and commitDate are set at build time, as in -ldflags "-X main.release=v1.2.3".
// They are empty after a plain go build; see [buildOf].
var release, revision, commitDate string

// version returns the release, or the version of the commit.
func version() string { return currentBuild().Version }

// currentBuild describes the build of this program: the values set at build time, or those that go
// build recorded.
func currentBuild() telemetry.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	b := buildOf(release, revision, commitDate, info)
	if fips140.Enabled() {
		b.FIPS = fips140.Version()
	}
	return b
}

func buildOf(release, revision, commitDate string, info *debug.BuildInfo) telemetry.Build {
	recorded := make(map[string]string)
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	return telemetry.Build{
		Version:    cmp.Or(release, info.Main.Version, "unknown"),
		Revision:   cmp.Or(revision, recorded["vcs.revision"]),
		CommitDate: cmp.Or(commitDate, recorded["vcs.time"]),
		Go:         runtime.Version(),
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
}

type versionCmd struct {
	Output string `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Output format: text or json."`
}

func (v versionCmd) Run(c console) error {
	b := currentBuild()
	if v.Output == "json" {
		return c.writeJSON(b)
	}
	fmt.Fprintln(c.out, versionText(b))
	return nil
}

// versionText returns the output of version and --version.
func versionText(b telemetry.Build) string {
	commit := ""
	if b.Revision != "" {
		commit = fmt.Sprintf(" (commit %s of %s)", b.Revision, cmp.Or(b.CommitDate, "unknown date"))
	}
	fips := ""
	if b.FIPS != "" {
		fips = " FIPS 140-3 module " + b.FIPS
	}
	return fmt.Sprintf("sluice %s%s %s %s%s", b.Version, commit, b.Go, b.Platform, fips)
}
