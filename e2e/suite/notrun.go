package suite

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// NoteSkipped leaves a line for the end of `make test`, which says there what it did not
// run, and why. Outside of make it does nothing.
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

// Skip skips a test that needs what this machine lacks, and notes it.
func Skip(tb testing.TB, why string) {
	tb.Helper()
	if err := NoteSkipped(tb.Name() + ": " + why); err != nil {
		tb.Fatal(err)
	}
	tb.Skip(why)
}

// SkipWithoutNamespaces is Skip for want of namespaces. Where they are required, as in CI, the
// test fails instead, so no change lands with it skipped.
func SkipWithoutNamespaces(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv("SLUICE_NAMESPACES") == "required" {
		tb.Fatal(why)
	}
	Skip(tb, why)
}
