//go:build more

package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

var (
	// Hits of charges, and pauses before messages.
	someHits  = []uint64{0, 1, 1, 1, 2, 3, 5, 9, 50, 1 << 31, 1 << 33, math.MaxUint64}
	someSteps = []time.Duration{
		0, 0, 1, 50, 1000, time.Millisecond, 17 * time.Millisecond, 99 * time.Millisecond, 100 * time.Millisecond,
		time.Second / 3, time.Second, 1500 * time.Millisecond, 8 * time.Second, time.Minute, 26 * time.Hour, 40 * time.Minute, 5 * time.Hour, 9 * 24 * time.Hour,
	}
)

// A tape encodes the actions of a test as bytes, so that fuzzing can generate them.
type tape []byte

func (t *tape) pick(n int) int {
	if len(*t) < 2 {
		*t = nil
		return 0
	}
	v := binary.LittleEndian.Uint16(*t)
	*t = (*t)[2:]
	return int(v) % n
}

// grantedLeases contains, for each counter, pairs of the table's lease and the store's lease.
type grantedLeases map[uint64][][2]uint64

// setRefunds replaces the hits of refunds in b, which are random numbers, by granted leases.
func (l grantedLeases) setRefunds(b *limiter.Batch, store int) {
	for i := range b.Charges {
		c := &b.Charges[i]
		if !c.Refund || !c.Policy.UsesLeases() {
			continue
		}
		granted := l[c.ID.Lo+c.Hits%23/22] // sometimes the leases of another counter
		if c.Hits == 0 || len(granted) == 0 {
			continue
		}
		c.Hits = granted[len(granted)-1-int(c.Hits)%min(len(granted), 6)][store]
	}
}

// add adds the leases that a charge acquired in the table and in the store.
func (l grantedLeases) add(tb testing.TB, plain, stored *limiter.Batch) {
	tb.Helper()
	for i := range plain.Charges {
		tableLease, storeLease := plain.Lease(i), stored.Lease(i)
		if (tableLease > 0) != (storeLease > 0) {
			tb.Fatalf("charge %d acquired the lease %d of the table and %d of the store\n%s", i, tableLease, storeLease, describe(plain.Charges))
		}
		if n := plain.Charges[i].ID.Lo; tableLease > 0 {
			// A nonce has 16 bits, so a lease may equal an earlier one. Both would return the newer permit.
			older := slices.DeleteFunc(l[n], func(old [2]uint64) bool { return old[0] == tableLease || old[1] == storeLease })
			l[n] = append(older, [2]uint64{tableLease, storeLease})
		}
	}
}

// nextRequest replaces b by the next request of the tape.
func (t *tape) nextRequest(b *limiter.Batch, late bool) {
	b.Reset()
	b.QuotaPass = t.pick(8) == 1
	b.Budget = []time.Duration{time.Minute, 0, 20 * time.Millisecond}[t.pick(3)]
	many, kinds, group := 1, 1+t.pick(len(counters)), int32(0)
	if t.pick(2) == 0 {
		many = 1 + t.pick(6)
	}
	edit, chooses := t.pick(16), t.pick(4) == 0
	if chooses {
		many, edit = 2+t.pick(7), 0
	}
	for range many {
		n := t.pick(kinds)
		if late {
			n = lateCounters[n%len(lateCounters)]
		}
		if last := len(b.Charges) - 1; last >= 0 && t.pick(4) == 0 {
			n = int(b.Charges[last].ID.Lo - 1)
		}
		if chooses && !late && t.pick(6) > 0 {
			n = choosable[t.pick(len(choosable))]
		}
		edits := counters[n]
		p := edits[edit%len(edits)]
		hits := someHits[t.pick(len(someHits))]
		refund, reserves := t.pick(6) == 1, false
		if chooses {
			hits = min(hits, 4)
		}
		if p.UsesLeases() {
			if refund = t.pick(2) == 1; refund {
				hits = uint64(t.pick(1 << 16))
			} else if reserves = p.Reserve != nil && t.pick(3) > 0; reserves {
				hits = min(hits, 20)
			}
		} else if p.Limit > 99 && t.pick(2) == 0 {
			hits = min(hits, 9) * uint64(p.Limit) / 10
		}
		b.Charges = append(b.Charges, limiter.Charge{
			ID: identity.ID{Hi: uint64(n+1) << 32, Lo: uint64(n + 1)}, Policy: p, Hits: hits, Refund: refund, Reserve: reserves,
			Mode: []limiter.Mode{limiter.Enforce, limiter.Enforce, limiter.Shadow, limiter.Quota, limiter.Watch}[t.pick(5)], Group: group,
		})
		if t.pick(3) > 0 && (!chooses || t.pick(4) == 0) {
			group++
		}
	}
	for i := 1; i < len(b.Charges); i++ {
		first, next := &b.Charges[i-1], &b.Charges[i]
		if first.Group != next.Group || !canBeChosen(first) || !canBeChosen(next) || t.pick(3) == 0 {
			continue
		}
		if next.Choice, next.Hits, next.Mode = limiter.NextChoice, first.Hits, first.Mode; first.Choice == limiter.NoChoice {
			first.Choice = limiter.FirstChoice
		}
	}
}

// lateCounters are the counters that late callers charge: no fixed windows, which use the caller's
// time, and no leases, for which the store has no late callers.
var lateCounters = func() (all []int) {
	for i, edits := range counters {
		if p := edits[0]; p.Algorithm != limiter.FixedWindow && !p.UsesLeases() {
			all = append(all, i)
		}
	}
	return all
}()

// choosable are the counters whose first policies can belong to a choice and whose limits are
// reached.
var choosable = func() (all []int) {
	for i, edits := range counters {
		if p := edits[0]; p.Limit < 100 && canBeChosen(&limiter.Charge{Policy: p}) {
			all = append(all, i)
		}
	}
	return all
}()

// canBeChosen reports whether c can belong to a choice.
func canBeChosen(c *limiter.Charge) bool {
	p := c.Policy
	return !c.Refund && c.Mode != limiter.Watch && !p.UsesLeases() && !p.CountRefused && p.Penalty == nil && p.MaxWait == 0
}

// logTimes has the latest possible times of charges on each log: of all charges, and of charges
// that may have been refunded since. A table does not count hits before such a time. The store does
// not remember the times, because its clock does not go back.
type logTimes struct{ charged, refunded map[uint64]limiter.Time }

// notBefore returns the later of at and the latest of these times on the logs of the requests.
func (g *logTimes) notBefore(at limiter.Time, requests []limiter.Batch) limiter.Time {
	// Only requests with refunds, leases or choices are rolled back: other denials are known beforehand.
	refunds := slices.ContainsFunc(requests, func(b limiter.Batch) bool {
		return slices.ContainsFunc(b.Charges, func(c limiter.Charge) bool {
			return c.Refund || c.Policy.UsesLeases() || c.Choice != limiter.NoChoice
		})
	})
	for i := range requests {
		for _, c := range requests[i].Charges {
			if at = max(at, g.refunded[c.ID.Lo]); refunds { // refunds of this request or of an earlier one
				at = max(at, g.charged[c.ID.Lo])
			}
		}
	}
	for i := range requests {
		for _, c := range requests[i].Charges {
			if c.Policy.Algorithm == limiter.SlidingLog {
				g.charged[c.ID.Lo] = max(at, g.charged[c.ID.Lo])
				if refunds {
					g.refunded[c.ID.Lo] = g.charged[c.ID.Lo]
				}
			}
		}
	}
	return at
}

// A tapePlayer compares a server with a table.
type tapePlayer struct {
	c         *redis.Conn
	prefix    string // prefix of the counters' names
	charges   int
	native    int // number of calls by native commands
	choices   int // number of choices that charged another alternative than the first
	penalties int // number of penalties that began
}

// play plays a tape on the server and on a table, at the same times.
func (r *tapePlayer) play(tb testing.TB, data []byte) {
	tb.Helper()
	in := tape(data)
	table, err := limiter.New(limiter.Options{Bytes: 16 << 20})
	must.OK(tb, err)
	now := limiter.Time(1_900_000_000_999_999_999)
	late, times := in.pick(3) == 0, logTimes{map[uint64]limiter.Time{}, map[uint64]limiter.Time{}}
	natives, leases := in.pick(3) > 0, grantedLeases{}
	all := []*script.Run{{}, {}}
	m, rep := &all[1].Message, &all[1].Reply
	for step := 0; len(in) > 0; step++ {
		now += limiter.Time(someSteps[in.pick(len(someSteps))])
		at := now
		if late && in.pick(4) == 0 {
			at -= limiter.Time(someSteps[in.pick(len(someSteps))])
		}
		calls := make([]*script.Call, 1+in.pick(4))
		plain, stored := make([]limiter.Batch, len(calls)), make([]limiter.Batch, len(calls))
		for i := range plain {
			in.nextRequest(&plain[i], late)
		}
		at = times.notBefore(at, plain)
		all[0].Clear(at)
		all[0].Native = true
		all[1].Clear(at)
		for i := range calls {
			stored[i] = limiter.Batch{
				Charges: append([]limiter.Charge(nil), plain[i].Charges...), QuotaPass: plain[i].QuotaPass, Budget: plain[i].Budget,
			}
			leases.setRefunds(&plain[i], 0)
			leases.setRefunds(&stored[i], 1)
			var names [][]byte
			for k := range plain[i].Charges {
				names = append(names, nameOf(r.prefix, &plain[i].Charges[k]))
			}
			calls[i] = &script.Call{}
			r.charges += len(names)
			if natives && calls[i].EncodeNative(at, &stored[i], names, time.Minute) {
				all[0].Add(calls[i])
				r.native++
				continue
			}
			calls[i].Encode(at, &stored[i], names, time.Minute)
			all[1].Add(calls[i])
		}
		script.DecideScript.Run(r.c, all...)
		if err := all[1].Err; err != nil {
			tb.Fatalf("step %d: %v\n%q\n%q", step, err, m.Keys, m.Args)
		}
		if rep.Now != at {
			tb.Fatalf("step %d: decided at %d, want %d", step, rep.Now, at)
		}
		all[1].Read()
		if all[1].Err != nil {
			tb.Fatalf("step %d: %v", step, all[1].Err)
		}
		admitted := int64(0)
		for i := range calls { // native calls were decided first
			if calls[i].Native {
				table.Decide(at, &plain[i])
			}
		}
		for i, c := range calls {
			found, state := c.Found, fmt.Sprintf("%+v", c.Found)
			if c.Err != nil {
				tb.Fatalf("step %d: %v", step, c.Err)
			}
			if !c.Native {
				table.Decide(at, &plain[i])
			}
			stored[i].Stored().Decide(at, found)
			if diff := cmp.Diff(plain[i].Decisions, stored[i].Decisions); diff != "" || plain[i].Denied != stored[i].Denied || plain[i].Wait != stored[i].Wait {
				tb.Fatalf("step %d at %d, call %d of %d, budget %v, QuotaPass %v, charges\n%s\nfound %s; table -, store +:\n%s\nsent %q",
					step, at, i, len(calls), plain[i].Budget, plain[i].QuotaPass, describe(plain[i].Charges), state, diff, m.Args)
			}
			leases.add(tb, &plain[i], &stored[i])
			for k := range plain[i].Decisions {
				if plain[i].Decisions[k].PenaltyStarted {
					r.penalties++
				}
				if plain[i].Charges[k].Choice == limiter.NextChoice && plain[i].Decisions[k].Charged > 0 {
					r.choices++
				}
			}
			if !c.Native {
				admitted += script.CountAdmitted(&stored[i])
			}
		}
		if rep.Unread() != 0 || rep.Admitted != admitted {
			tb.Fatalf("step %d: %d unread values; the store admitted %d charges, the decision %d\n%s\nsent %q", step, rep.Unread(), rep.Admitted, admitted, describe(stored[0].Charges), m.Args)
		}
	}
}

func describe(charges []limiter.Charge) string {
	var s strings.Builder
	for i := range charges {
		c := &charges[i]
		p := *c.Policy
		fmt.Fprintf(&s, "  counter %d group %d mode %d hits %d refund %v reserve %v choice %v, algorithm %d limit %d window %v burst %d slack %d wait %v count %v penalty %v\n",
			c.ID.Lo, c.Group, c.Mode, c.Hits, c.Refund, c.Reserve, c.Choice, p.Algorithm, p.Limit, p.Window, p.Burst, p.Slack, p.MaxWait, p.CountRefused, p.Penalty)
	}
	return s.String()
}

// loadScript sends the script to the server.
func loadScript(c *redis.Conn) error {
	var nothing script.Run
	nothing.Clear(0)
	script.DecideScript.Run(c, &nothing)
	return nothing.Err
}

func newClient(tb testing.TB, s *storetest.Server) *redis.Conn {
	tb.Helper()
	c, err := redis.Dial(context.Background(), &redis.Server{Network: "tcp", Address: s.Addr}, longTimeout)
	must.OK(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// The script decides exactly as a table does, on every available server. STORE_SEED repeats a
// failure.
func TestScriptDecidesAsATable(t *testing.T) {
	t.Parallel()
	tapes, seed := effort.Times(t, 40), fromEnvironment(t, "STORE_SEED", 18)
	for _, binary := range storetest.Binaries(t) {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			srv := storetest.StartBinary(t, binary)
			c := newClient(t, srv)
			r := tapePlayer{c: c}
			random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
			for n := range tapes {
				data := make([]byte, 3000)
				_, _ = random.Read(data)
				r.prefix = fmt.Sprintf("t%d", n)
				r.play(t, data)
				if t.Failed() {
					t.Fatalf("failed with tape %d", n)
				}
			}
			t.Logf("%d charges, %d requests by native commands", r.charges, r.native)
			if t.Logf("%d penalties", r.penalties); r.penalties < 100 {
				t.Error("want at least 100 penalties")
			}
			if r.choices < 10 {
				t.Errorf("%d choices charged a further alternative, want at least 10", r.choices)
			}
			if r.native == 0 {
				t.Error("no request was decided by native commands")
			}
			if n := srv.Must("EVAL", countWithoutExpiry, "0"); n != "0" {
				t.Errorf("%s keys have no expiry", n)
			}
		})
	}
}
