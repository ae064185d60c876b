//go:build !limiterhooks

package limiter_test

import (
	"math/rand/v2"
	"testing"
)

// tableTurn returns nil: without hooks the histories of a table run in parallel.
func tableTurn(testing.TB, *rand.Rand) *turn { return nil }
