// Package must has test helpers that stop a test at an error, or until an event.
package must

import "testing"

// OK fails the test immediately if err is not nil.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
