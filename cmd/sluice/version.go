package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set at build time for releases: -ldflags "-X main.release=v1.2.3".
var release = ""

// version returns the release, or the commit that was built.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (modified)"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return revision + modified
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(c console) error {
	_, err := fmt.Fprintf(c.out, "sluice %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
