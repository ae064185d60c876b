package suite

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// NoteSkipped adds a line to the report at the end of `make test-more`, which lists the omitted tests
// and why. Outside of make it does nothing.
func NoteSkipped(what string) error {
	path := os.Getenv("SLUICE_NOT_RUN")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, what)
	return errors.Join(err, f.Close())
}

// Skip skips a test because this machine lacks a requirement, and notes it.
func Skip(tb testing.TB, why string) {
	tb.Helper()
	if err := NoteSkipped(tb.Name() + ": " + why); err != nil {
		tb.Fatal(err)
	}
	tb.Skip(why)
}

// SkipAtYearEnd skips a test in the last hour of a year. A year has 365 days and is the longest unit
// of limits. Tests that count hits in windows of a year or more see no end of a window, because they
// last at most an hour, the timeout of `go test`.
func SkipAtYearEnd(tb testing.TB) {
	tb.Helper()
	const year = 365 * 86400
	if time.Now().Unix()%year >= year-3600 {
		Skip(tb, "the year of limits ends within an hour")
	}
}

// SkipWithoutNamespaces skips a test because Linux namespaces are not available. It fails the test
// instead if SLUICE_NAMESPACES is "required", as in CI.
func SkipWithoutNamespaces(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv("SLUICE_NAMESPACES") == "required" {
		tb.Fatal(why)
	}
	Skip(tb, why)
}
