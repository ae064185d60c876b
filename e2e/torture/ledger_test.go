package torture

import (
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestLedgerFinds plants what a broken service would say, on a counter of limit 3.
func TestLedgerFinds(t *testing.T) {
	k := Key{"fixed_window", "v"}
	say := func(code rls.RateLimitResponse_Code, remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return &rls.RateLimitResponse_DescriptorStatus{
			Code: code, LimitRemaining: remaining,
			CurrentLimit: &rls.RateLimitResponse_RateLimit{Name: k.Rule},
		}
	}
	ok := func(remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return say(rls.RateLimitResponse_OK, remaining)
	}
	over := say(rls.RateLimitResponse_OVER_LIMIT, 0)
	ask := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
		for _, a := range answers {
			l.Answer(k, l.Begin(k), a)
		}
	}
	atOnce := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
		floors := make([]int, len(answers))
		for i := range answers {
			floors[i] = l.Begin(k)
		}
		for i, a := range answers {
			l.Answer(k, floors[i], a)
		}
	}
	for name, tt := range map[string]struct {
		play func(l *Ledger)
		want string
	}{
		"in order":               {func(l *Ledger) { ask(l, ok(2), ok(1), ok(0), over, over); l.peek(k, over) }, ""},
		"at once, in any order":  {func(l *Ledger) { atOnce(l, over, ok(0), ok(2), ok(1)); l.peek(k, ok(0)) }, ""},
		"a peek at what is left": {func(l *Ledger) { ask(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted":       {func(l *Ledger) { l.Begin(k); l.Lost(k); ask(l, ok(1)); l.peek(k, ok(1)) }, ""},
		"unknown, not counted":   {func(l *Ledger) { l.Begin(k); l.Lost(k); ask(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted last":  {func(l *Ledger) { ask(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(1)) }, ""},
		"unknown fill it": {func(l *Ledger) {
			l.Begin(k)
			l.Lost(k)
			l.Begin(k)
			l.Lost(k)
			ask(l, ok(0), over)
			l.peek(k, over)
		}, ""},
		"one was not counted":       {func(l *Ledger) { atOnce(l, ok(2), ok(2)) }, "two were admitted as number 1"},
		"counts went back":          {func(l *Ledger) { ask(l, ok(1)) }, "admitted as number 2 of 1"},
		"an older answer":           {func(l *Ledger) { ask(l, ok(2), ok(1)); ask(l, ok(2)) }, "after number 2"},
		"admitted after a denial":   {func(l *Ledger) { ask(l, ok(2), ok(1), ok(0), over, ok(0)) }, "after number 3"},
		"beyond the limit":          {func(l *Ledger) { ask(l, ok(3)) }, "3 of 3 remain"},
		"denied too early":          {func(l *Ledger) { ask(l, ok(2), over) }, "denied the 2th call"},
		"denied with some left":     {func(l *Ledger) { atOnce(l, ok(2), ok(1), ok(0), say(rls.RateLimitResponse_OVER_LIMIT, 1)) }, "but 1 remain"},
		"another's answer":          {func(l *Ledger) { a := ok(2); a.CurrentLimit.Name = "sliding_log"; ask(l, a) }, "sliding_log"},
		"no answer":                 {func(l *Ledger) { ask(l, say(rls.RateLimitResponse_UNKNOWN, 0)) }, "UNKNOWN"},
		"forgotten":                 {func(l *Ledger) { ask(l, ok(2), ok(1)); l.peek(k, ok(3)) }, "has used 0, want 2 to 2"},
		"counted twice":             {func(l *Ledger) { ask(l, ok(2)); l.peek(k, ok(1)) }, "has used 2, want 1 to 1"},
		"more than the unknown":     {func(l *Ledger) { ask(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(0)) }, "has used 3, want 1 to 2"},
		"lost before an answer":     {func(l *Ledger) { atOnce(l, ok(1), ok(0)); l.peek(k, ok(0)) }, "of 2 calls"},
		"a hole that nobody made":   {func(l *Ledger) { atOnce(l, ok(2), ok(0), over); l.peek(k, over) }, "denied the 3th call"},
		"places lost to the denied": {func(l *Ledger) { ask(l, ok(2), ok(1)); atOnce(l, over, over); l.peek(k, over) }, "want 3 to 2"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(3, 1)
			tt.play(l)
			got := strings.Join(l.Faults(), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults are %q, want %q", got, tt.want)
			}
		})
	}
}
