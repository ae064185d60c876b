package top

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestBlocksAreShown verifies the totals, the counters with a block and the block of a denied key.
func TestBlocksAreShown(t *testing.T) {
	s := newState()
	v := view{width: 80}
	screen := func() string { return strings.Join(texts(v.screen(s, 60)), "\n") }
	if text := screen(); strings.Contains(text, "lock") {
		t.Errorf("without blocks the screen is\n%s", text)
	}
	s.Domains[0].DeniedKeys[0].Block = &live.BlockState{Unused: 3, Size: 7}
	s.Blocks = &live.Blocks{}
	if text := screen(); !strings.Contains(text, "blocks: 0 hot counters, 0 unused hits, replicas unknown") || strings.Contains(text, "BLOCK") {
		t.Errorf("before the first block the screen is\n%s", text)
	}
	s.Blocks = &live.Blocks{HotCounters: 3, Unused: 412, Replicas: 2, Largest: []live.BlockCounter{
		{
			Replica: "b:1", Hash: "0cc804324b73140c", BlockState: live.BlockState{Unused: 400, Size: 767},
			CounterName: live.CounterName{Domain: "shop", Rule: "user", Limit: "200000/hour"},
		},
		{
			BlockState:  live.BlockState{Unused: 12, Size: 40},
			CounterName: live.CounterName{Domain: "shop", Descriptor: "plan=free", Rule: "plan", Limit: "9/hour, table: t", OwnLimit: "7/hour", Table: "plans"},
		},
	}}
	text := screen()
	for _, want := range []string{
		"blocks: 3 hot counters, 412 unused hits, 2 replicas",
		"  UNUSED      SIZE  COUNTER WITH A BLOCK\n     400       767  #0cc804324b73140c  b:1: shop: user 200000/hour\n      12        40  plan=free  shop: plan 7/hour, from table plans\n  1 other hot counter, with fewer unused hits or none",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	if got := keyItem("shop", &s.Domains[0].DeniedKeys[0], s.Time).text; got != "shop: user 5/hour, blocks: 3 of 7 unused" {
		t.Errorf("the key is %q", got)
	}
}

// TestEachReplicaExplainsItsBlock verifies that the details of a key show the counter as the first
// replica sees it, and with blocks as each replica does.
func TestEachReplicaExplainsItsBlock(t *testing.T) {
	for _, blocks := range []*live.Blocks{nil, {}} {
		s := newState()
		s.Domains[0].DeniedKeys[0].Descriptor, s.Counters, s.Blocks = "user=alice", "store", blocks
		p := newProgram(s)
		asked := 0
		p.service.Explain = func(*admin.CounterReport, client.CounterQuery) string { return "" }
		answer := func(*http.Request) (int, any) {
			asked++
			return http.StatusOK, admin.CounterReport{}
		}
		p.replicas(t, answer, answer)
		p.run(p.press("enter"))
		want := 1
		if blocks != nil {
			want = 2
		}
		if asked != want {
			t.Errorf("with blocks %v, %d replicas were asked, want %d", blocks, asked, want)
		}
	}
}
