package simulation

import (
	"strings"
	"testing"
	"time"
)

// handmadeOrders are orders whose requests are made by hand. The limit of the only rule is 3 per 10 s.
type handmadeOrders struct {
	*orders

	kind *orderKind
	rule *orderRule
	made *handmade
}

func newHandmadeOrders(kind, algorithm string) *handmadeOrders {
	h := newHandmade(algorithm)
	h.callTimeout = time.Second
	rule := &orderRule{key: kind, limits: []*limit{h.limit}}
	k := &orderKind{name: kind, rules: []*orderRule{rule}}
	return &handmadeOrders{&orders{world: h.world, kinds: []*orderKind{k}, entries: map[*limit][]*entry{}}, k, rule, h}
}

// add adds requests of one hit that are decided between the given seconds and 10 ms later.
func (h *handmadeOrders) add(o outcome, at ...float64) {
	for _, s := range at {
		e := h.made.add(s, o)
		e.replica, e.received = "sluice-0", e.sent.Add(10*time.Millisecond)
		h.entries[h.made.limit] = append(h.entries[h.made.limit], e)
	}
}

// change adds a change between two seconds.
func (h *handmadeOrders) change(kind string, n uint64, from, to float64) {
	at := func(s float64) time.Time { return h.made.began.Add(time.Duration(s * float64(time.Second))) }
	h.note(h.rule, change{kind: kind, replica: "sluice-0", n: n, ok: true, from: at(from), to: at(to), active: at(from), until: at(to)})
}

// TestOrderInvariantsCanFail breaks the invariants of orders.
func TestOrderInvariantsCanFail(t *testing.T) {
	tests := []struct {
		kind, algorithm, violation string
		passes, fails              func(*handmadeOrders)
	}{
		{
			"table", "sliding_window", "admitted 4 hits within",
			func(h *handmadeOrders) { h.change("row", 4, 0, 5); h.add(admitted, 1, 2, 3, 4) },
			func(h *handmadeOrders) { h.change("row", 4, 0, 0.5); h.add(admitted, 1, 2, 3, 4) },
		},
		{
			"table", "sliding_window", "denied 1 hits at 4s without a reason",
			func(h *handmadeOrders) { h.change("row", 2, 0, 3); h.add(admitted, 1, 2); h.add(denied, 4) },
			func(h *handmadeOrders) { h.change("row", 2, 0, 2.8); h.add(admitted, 1, 2); h.add(denied, 4) },
		},
		{
			"group", "token_bucket", "denied 1 hits at 2s without a reason", // the first were returned, because the other limit denied them
			func(h *handmadeOrders) { h.add(admitted, 1); h.add(refunded, 1.5); h.add(denied, 2) },
			func(h *handmadeOrders) { h.add(admitted, 1); h.add(refunded, 0.5); h.add(denied, 2) },
		},
		{
			"refunded", "fixed_window", "admitted 4 hits within",
			func(h *handmadeOrders) { h.add(admitted, 1, 2, 3, 4); h.change("refund", 1, 3.5, 3.6) },
			func(h *handmadeOrders) { h.add(admitted, 1, 2, 3, 4); h.change("refund", 1, 5, 6) },
		},
		{
			"reset", "fixed_window", "denied 1 hits at 6s without a reason",
			func(h *handmadeOrders) { h.add(admitted, 1, 2, 3); h.change("reset", 0, 4, 5); h.add(denied, 6) },
			func(h *handmadeOrders) { h.add(admitted, 1, 2, 3); h.change("reset", 0, 4, 4.8); h.add(denied, 6) },
		},
		{
			"shadow", "fixed_window", "the rule shadow, which only counts, denied a request at 2s",
			func(h *handmadeOrders) { h.rule.shadow = true; h.add(admitted, 1, 1, 1, 1) },
			func(h *handmadeOrders) { h.rule.shadow = true; h.add(admitted, 1, 1, 1); h.add(denied, 2) },
		},
		{
			"removed", "fixed_window", "sluice-0 denied a request at 3s, although it has no rule for removed",
			func(h *handmadeOrders) { h.change("rule", 0, 2, 3.001); h.add(admitted, 1, 1, 1); h.add(denied, 3) },
			func(h *handmadeOrders) { h.change("rule", 0, 2, 4); h.add(admitted, 1, 1, 1); h.add(denied, 3) },
		},
		{
			"penalty", "fixed_window", "penalty admitted a request at 11s, although it denied one at 9s and has a penalty of 3s",
			func(h *handmadeOrders) {
				h.rule.penalty = 3 * time.Second
				h.add(admitted, 1, 1, 1, 12)
				h.add(denied, 9, 11)
			},
			func(h *handmadeOrders) {
				h.rule.penalty = 3 * time.Second
				h.add(admitted, 1, 1, 1, 11)
				h.add(denied, 9)
			},
		},
		{
			"delayed", "leaky_bucket", "admitted 3 hits within", // the last is due 10/3 s after the second
			func(h *handmadeOrders) { delayed(h, 24.36) }, func(h *handmadeOrders) { delayed(h, 24.2) },
		},
		{
			"delayed", "leaky_bucket", "the response to a request at 21.2s came at 24.6s, but was due before 24.3",
			func(h *handmadeOrders) { delayed(h, 24.36) }, func(h *handmadeOrders) { delayed(h, 24.6) },
		},
	}
	for _, test := range tests {
		for _, fails := range []bool{false, true} {
			h := newHandmadeOrders(test.kind, test.algorithm)
			if fails {
				test.fails(h)
			} else {
				test.passes(h)
			}
			h.check()
			if failures := h.made.failures; fails && (len(failures) != 1 || !strings.Contains(failures[0], test.violation)) || !fails && len(failures) > 0 {
				t.Errorf("%s: reported %q (%t), want %q", test.kind, failures, fails, test.violation)
			}
		}
	}
}

// delayed adds two requests in the 21st second, and a third whose response comes at the given
// second.
func delayed(h *handmadeOrders, at float64) {
	h.kind.waits = 5 * time.Second
	h.made.callTimeout = 10 * time.Second
	h.add(admitted, 21, 21, 21.2)
	all := h.entries[h.made.limit]
	all[len(all)-1].received = h.made.began.Add(time.Duration(at * float64(time.Second)))
}
