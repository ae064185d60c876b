// Package must is for tests: it ends a test at an error.
package must

import "testing"

// OK ends the test if err is not nil.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
