package main

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestBlockText verifies the text for a counter of which the replica has a block.
func TestBlockText(t *testing.T) {
	s := admin.CounterState{Limit: "100/second", Used: 60, Capacity: 100, Remaining: 40, Block: &live.BlockState{Unused: 12, Size: 40}}
	if got, want := counterText(&s, false), "100/second: 60 used of 100, 40 left, 12 of a block of 40 unused"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
}
