package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// mainPackage must be the main package in a program's build information.
const mainPackage = "github.com/sluice-ratelimit/sluice/cmd/sluice"

// Paths of the program, which is one file. Under ratelimitPath it replaces envoyproxy/ratelimit.
const (
	programPath   = "bin/sluice"
	ratelimitPath = "bin/ratelimit"
)

// program is a binary of sluice.
type program struct {
	path     string
	content  []byte
	platform v1.Platform
	info     *debug.BuildInfo
}

// readProgram reads a binary. It returns an error if it is not sluice, or needs a C library, which
// the image does not contain.
func readProgram(path string) (*program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	if info.Path != mainPackage {
		return nil, fmt.Errorf("%s is the program of %s: must be that of %s", path, info.Path, mainPackage)
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if system := settings["GOOS"]; system != "linux" && system != "darwin" {
		return nil, fmt.Errorf("%s is built for GOOS=%s: must be linux or darwin", path, system)
	}
	if settings["CGO_ENABLED"] != "0" {
		return nil, fmt.Errorf("%s is built with CGO_ENABLED=%s: must be 0, since the image has no C library", path, settings["CGO_ENABLED"])
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	return &program{
		path:     path,
		content:  content,
		platform: v1.Platform{OS: settings["GOOS"], Architecture: settings["GOARCH"]},
		info:     info,
	}, nil
}

func dashed(p v1.Platform) string { return p.OS + "-" + p.Architecture }
