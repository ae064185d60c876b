//go:build more

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestClockScripts runs testdata/clock/*.txt, scripts whose outcome depends on real durations.
func TestClockScripts(t *testing.T) {
	p := scripts(t)
	p.Dir = "testdata/clock"
	testscript.Run(t, p)
}
