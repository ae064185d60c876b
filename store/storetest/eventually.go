package storetest

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// Eventually is [must.Eventually].
func Eventually(tb testing.TB, description string, condition func() bool) {
	tb.Helper()
	must.Eventually(tb, description, condition)
}
