package guard

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestBudget holds the numbers of the budget to the act.
func TestBudget(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := newBudget(now)
	check := func(what string, spend int, want bool) {
		t.Helper()
		b.spend(spend)
		if got := b.spent(func() time.Time { return now }); got != want {
			t.Errorf("%s: spent is %v with %d left", what, got, b.left)
		}
	}
	check("as many as allowed at once", oddActsAtOnce, false)
	check("one more", 1, true)
	now = now.Add(time.Second)
	check("a second later", 0, false)
	check("as many as a second gives", oddActsPerSecond-1, false)
	check("one more in the same second", 1, true)
	now = now.AddDate(200, 0, 0)
	check("after a long time", 0, false)
	check("no more than at first", oddActsAtOnce, false)
	check("one more than at first", 1, true)
	b.give(5 * oddActsAtOnce)
	check("after many calls, no more than at first", oddActsAtOnce, false)
	check("one more after many calls", 1, true)
}

// TestWhatFramesCost holds what each frame takes from the budget or gives to it.
func TestWhatFramesCost(t *testing.T) {
	begin := func(c *conversation) { c.begin(1) }
	whole := func(c *conversation) { c.begin(1); c.data(1, true, 200) }
	reset := func(code http2.ErrCode) func(c *conversation) {
		return func(c *conversation) { c.goes(c.server.WriteRSTStream(1, code)) }
	}
	for name, tt := range map[string]struct {
		before, frame func(c *conversation)
		want          int
	}{
		"a call":                     {nil, begin, -oddActsPerCall},
		"the same stream":            {begin, begin, 0},
		"an earlier one":             {func(c *conversation) { c.begin(9) }, begin, 0},
		"an answer":                  {whole, func(c *conversation) { c.answer(1) }, -oddActsPerAnswer},
		"a reset":                    {begin, func(c *conversation) { c.goes(c.client.WriteRSTStream(1, http2.ErrCodeCancel)) }, 0},
		"a reset too many":           {nil, func(c *conversation) { c.goes(c.client.WriteRSTStream(1, http2.ErrCodeCancel)) }, 1},
		"an end":                     {begin, func(c *conversation) { c.data(1, true, 0) }, 0},
		"an end too many":            {nil, func(c *conversation) { c.data(1, true, 0) }, 1},
		"small data":                 {begin, func(c *conversation) { c.data(1, false, smallFrame-1) }, 1},
		"data":                       {begin, func(c *conversation) { c.data(1, false, smallFrame) }, 0},
		"a late answer":              {whole, reset(http2.ErrCodeCancel), 0},
		"an early answer":            {begin, reset(http2.ErrCodeNo), 0},
		"a broken frame":             {begin, reset(http2.ErrCodeProtocol), 1 + oddActsPerCall},
		"a stream too many, unaware": {begin, reset(http2.ErrCodeRefusedStream), 0},
		"a stream too many, after the client's SETTINGS": {
			func(c *conversation) { c.goes(c.client.WriteSettings()); c.begin(1) }, reset(http2.ErrCodeRefusedStream), 0,
		},
		"a stream too many, aware": {
			func(c *conversation) { c.goes(c.client.WriteSettingsAck()); c.begin(1) }, reset(http2.ErrCodeRefusedStream), 1 + oddActsPerCall,
		},
		"a stream too many, aware, between two acknowledgements": {
			func(c *conversation) {
				c.goes(c.client.WriteSettingsAck())
				c.begin(1)
				c.goes(c.client.WriteSettingsAck())
			}, reset(http2.ErrCodeRefusedStream), 1 + oddActsPerCall,
		},
		"a stream too many, begun unaware": {
			func(c *conversation) { c.begin(1); c.goes(c.client.WriteSettingsAck()) }, reset(http2.ErrCodeRefusedStream), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := converse(t, newGuard(Options{}))
			if tt.before != nil {
				tt.before(c)
			}
			c.mustBeWell()
			const left = oddActsAtOnce / 2
			c.conn.odd.left = left
			tt.frame(c)
			c.mustBeWell()
			if got := left - c.conn.odd.left; got != tt.want {
				t.Errorf("it costs %d, want %d", got, tt.want)
			}
		})
	}
}
