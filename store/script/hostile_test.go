package script

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// oddNumbers are counts that a malicious or broken store may send.
var oddNumbers = []int64{
	0, 1, -1, 2, 16, 17, 4096, 4097, limiter.FirstLease, limiter.LastLease, limiter.LastLease + 1, 1 << 31, 1<<32 - 1, 1 << 32, limiter.MaxCount, limiter.MaxCount + 1,
	1_800_000_000, 1_800_000_000_000, 1 << 53, 1 << 59, math.MaxInt64 / 1000, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1,
}

// The elements of replies have the right kinds and arbitrary values. Nothing panics or loops
// forever, and no decision has a time before now.
func TestRepliesWithArbitraryNumbers(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	calendar := limiter.NewCalendar(time.UTC, 31).WithUnit(limiter.Months)
	penalty := limiter.NewPenalty(time.Minute, limiter.MaxPenalty)
	reserve := limiter.NewReserve(3, time.Minute, false)
	policies := map[string]limiter.Policy{
		"fixed":            {Algorithm: limiter.FixedWindow, Limit: 5, Window: window},
		"fixed, penalty":   {Algorithm: limiter.FixedWindow, Limit: 5, Window: window, Penalty: penalty},
		"fixed, reserve":   {Algorithm: limiter.FixedWindow, Limit: 5, Window: window, Reserve: reserve},
		"fixed, calendar":  {Algorithm: limiter.FixedWindow, Limit: 5, Window: 30 * 24 * time.Hour, Calendar: calendar},
		"ring":             {Algorithm: limiter.SlidingWindow, Limit: 5, Window: window, SubWindows: 4, Penalty: penalty},
		"ring, reserve":    {Algorithm: limiter.SlidingWindow, Limit: math.MaxUint32, Window: window, SubWindows: 1, Reserve: reserve},
		"ring, calendar":   {Algorithm: limiter.SlidingWindow, Limit: 5, Window: 30 * 24 * time.Hour, SubWindows: 10, Calendar: calendar, Penalty: penalty},
		"log":              {Algorithm: limiter.SlidingLog, Limit: 5, Window: window, Penalty: penalty},
		"bucket":           {Algorithm: limiter.TokenBucket, Limit: 5, Window: window, Burst: 9, Penalty: penalty},
		"bucket, reserve":  {Algorithm: limiter.TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: 1 << 31, Reserve: reserve},
		"leaky bucket":     {Algorithm: limiter.LeakyBucket, Limit: 5, Window: window},
		"concurrency":      {Algorithm: limiter.Concurrency, Limit: 5, Window: window},
		"fixed, all count": {Algorithm: limiter.FixedWindow, Limit: math.MaxUint32, Window: limiter.MaxWindow, CountRefused: true, Penalty: penalty},
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy.Prepare()
			must.OK(t, policy.Validate())
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
			must.OK(t, err)
			table.SetMirror()
			decided := 0
			for range effort.Times(t, 400) {
				now := limiter.Time(1_800_000_000 * time.Second)
				b := new(limiter.Batch)
				var names [][]byte
				for range 1 + random.IntN(3) {
					c := limiter.Charge{ID: identity.ID{Hi: random.Uint64N(3) << 60, Lo: 7}, Policy: &policy, Hits: uint64(random.IntN(4)), Mode: limiter.Mode(random.IntN(4))}
					switch random.IntN(3) {
					case 0:
						c.Refund = true
						if policy.UsesLeases() {
							c.Hits = NewLease("k", 0)
						}
					case 1:
						c.Reserve = policy.Reserve != nil
					}
					b.Charges, names = append(b.Charges, c), append(names, []byte("k"))
				}
				var c Call
				c.Encode(now, b, names, 0)
				var r Run
				r.Clear(0)
				r.Add(&c)
				must.OK(t, fillReply(&r, random, &policy, now))
				if r.Reply.begin() != nil {
					continue
				}
				if r.Read(); r.Err != nil || c.Err != nil {
					continue
				}
				decided++
				b.Stored().Decide(r.Reply.Now, c.Found)
				var left limiter.State
				for i := range b.Charges {
					if d := &b.Decisions[i]; d.RetryAfter < limiter.Never || d.Reset < limiter.Never || d.Remaining > policy.MaxHits() && !b.Charges[i].Refund {
						t.Fatalf("%v: decision %+v, found %+v", &r.Reply, d, c.Found)
					}
					b.Stored().StateAfter(r.Reply.Now, i, &left)
					b.Stored().MergeInto(table, r.Reply.Now, i, &left)
				}
				for i := range b.Charges { // another part of the request may change the decision
					refunds, refunded := b.Stored().Deny(r.Reply.Now, i)
					if c, d := &b.Charges[i], &b.Decisions[i]; refunds > c.Hits || refunded > refunds || c.Refund && !policy.UsesLeases() && (d.Charged > c.Hits || b.Stored().Refunded(i) > d.Charged) {
						t.Fatalf("%v: decision %+v on %d hits, %d refunded of %d, found %+v", &r.Reply, d, c.Hits, refunded, refunds, left)
					}
				}
				table.Decide(now, b)
			}
			if decided < 20 {
				t.Errorf("%d replies were read to the end, want 20 or more", decided)
			}
		})
	}
}

// fillReply gives r a reply that mostly begins with a time, followed mostly by numbers.
func fillReply(r *Run, random *rand.Rand, p *limiter.Policy, now limiter.Time) error {
	var text strings.Builder
	const many = 60
	fmt.Fprintf(&text, "*%d\r\n", many)
	odd := func() int64 { return oddNumbers[random.IntN(len(oddNumbers))] }
	for i := range many {
		switch {
		case i == 0 && random.IntN(4) > 0:
			fmt.Fprintf(&text, ":%d\r\n", int64(now)/int64(time.Second)+random.Int64N(3)-1)
		case i == 1 && random.IntN(4) > 0:
			fmt.Fprintf(&text, ":%d\r\n", random.Int64N(1e9))
		case p.Algorithm == limiter.SlidingWindow && (i == 3 || random.IntN(30) == 0):
			b := make([]byte, 8+4*(p.Ring().K()+1))
			for j := range b {
				b[j] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				bits := math.Float64bits(float64(p.Ring().Number(now) + random.Int64N(9) - 4))
				for j := range 8 {
					b[j] = byte(bits >> (8 * j))
				}
			}
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(b), b)
		case random.IntN(3) == 0:
			text.WriteString(":0\r\n")
		default:
			fmt.Fprintf(&text, ":%d\r\n", odd())
		}
	}
	r.Reply.raw.Reset(resp.Limits{Values: 1 << 10, Bytes: 1 << 20})
	_, _, err := new(resp.Decoder).Decode([]byte(text.String()), &r.Reply.raw)
	return err
}
