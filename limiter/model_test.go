package limiter

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// model is the specification of a Table, as simple as possible: single-threaded, maps, unbounded
// memory.
type model map[modelKey]modelCounter

type modelKey struct {
	id identity.ID
	a  Algorithm
}

type modelCounter struct {
	end  int64 // Unix seconds
	used uint64
}

func quotient(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// at returns the counter of c at now, with a window.
func (m model) at(now Time, c Charge) modelCounter {
	sec, length := quotient(int64(now), 1e9), int64(c.Policy.Window/time.Second)
	have, ok := m[modelKey{c.ID, c.Policy.Algorithm}]
	if ok && have.end > sec && !tooFar(windowStart(c.Policy, have.end), now) {
		return have
	}
	if p := c.Policy.Calendar; p != nil && p.zone != time.UTC {
		return modelCounter{end: plain(p).starts[plain(p).window(sec)+1]}
	}
	return modelCounter{end: (quotient(sec, length) + 1) * length}
}

// windowStart returns the start of the fixed window of p that ends at a Unix second.
func windowStart(p *Policy, end int64) Time {
	if c := p.Calendar; c != nil && c.zone != time.UTC {
		return Time(plain(c).starts[plain(c).window(end-1)]) * sec
	}
	return Time(end)*sec - Time(p.Window)
}

// tooFar reports whether a counter that began at a time starts again.
func tooFar(began, now Time) bool { return began > now+3600*sec }

func (m model) put(c Charge, n modelCounter) { m[modelKey{c.ID, c.Policy.Algorithm}] = n }

// decide implements Table.Decide.
func (m model) decide(now Time, b *Batch) {
	n := len(b.Charges)
	b.Decisions, b.Denied = make([]Decision, n), false

	// Refunds are offset first.
	left := make([]uint64, n)
	same := func(i, j int) bool {
		return b.Charges[i].ID == b.Charges[j].ID && b.Charges[i].Policy.Algorithm == b.Charges[j].Policy.Algorithm
	}
	refunds := false
	offs := map[[2]int]uint64{}   // offset hits by refund and charge
	refunded := make([]uint64, n) // hits that refunds removed from their counters
	for i, c := range b.Charges {
		left[i], refunds = c.Hits, refunds || c.Refund
	}
	for i, r := range b.Charges {
		for j, c := range b.Charges {
			if r.Refund && !c.Refund && same(i, j) {
				off := min(left[i], left[j])
				left[i], left[j], offs[[2]int{i, j}] = left[i]-off, left[j]-off, off
			}
		}
	}

	// A quota that is already over its limit denies immediately.
	fitsQuota := func(used uint64, i int) bool {
		c := b.Charges[i]
		return c.Refund || left[i] <= uint64(c.Policy.Limit) && used <= uint64(c.Policy.Limit)-left[i]
	}
	size := map[int32]int{}
	quotas, remainingQuotas := 0, 0
	for i, c := range b.Charges {
		size[c.Group]++
		if c.Mode == Quota {
			quotas++
			if fitsQuota(m.at(now, c).used, i) {
				remainingQuotas++
			}
		}
	}
	early := quotas > 0 && remainingQuotas == 0 && !b.QuotaPass && !refunds && len(size) < n

	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = lo + size[b.Charges[lo].Group]
		tentative, deny := maps.Clone(m), false
		for i := lo; i < hi; i++ {
			c, d := b.Charges[i], &b.Decisions[i]
			now0 := tentative.at(now, c)
			after := now0
			limit := uint64(c.Policy.Limit)
			*d = Decision{Before: now0.used, Reset: time.Duration(now0.end*1e9 - int64(now))}
			switch {
			case c.Refund:
				after.used -= min(after.used, left[i])
				refunded[i] = now0.used - after.used
				d.Charged = c.Hits - left[i] + refunded[i]
			case fitsQuota(now0.used, i):
				after.used += left[i]
				d.Charged = left[i]
			default:
				d.Over, d.RetryAfter = true, d.Reset
				if left[i] > limit {
					d.RetryAfter = Never
				}
				if c.Policy.CountRefused {
					after.used += min(left[i], MaxCount-after.used)
					d.Charged = after.used - now0.used
				}
				deny = deny || c.Mode == Enforce
			}
			if !d.Over {
				d.Remaining = limit - min(limit, after.used)
			}
			deny = deny || early && c.Mode == Quota && hi-lo > 1
			if after != now0 {
				tentative.put(c, after)
				if c.Refund || c.Policy.CountRefused {
					kept := m.at(now, c)
					if kept.end == after.end {
						m.put(c, modelCounter{after.end, kept.used + after.used - now0.used})
					}
				}
			}
		}
		if !deny {
			clear(m)
			maps.Copy(m, tentative)
			continue
		}
		m.deny(now, b, lo, hi, false)
	}

	remainingQuotas = 0
	for i, c := range b.Charges {
		if c.Mode == Quota && !b.Decisions[i].Over {
			remainingQuotas++
		}
	}
	if quotas > 0 && remainingQuotas == 0 && !b.QuotaPass {
		var hi int
		for lo := 0; lo < n; lo = hi {
			hi = lo + size[b.Charges[lo].Group]
			for i := lo; i < hi; i++ {
				if b.Charges[i].Mode == Quota && !b.Decisions[i].Denied {
					m.deny(now, b, lo, hi, true)
				}
			}
		}
	}

	// A refund returns separately the hits that were offset against denied hits that do not
	// count.
	for i, r := range b.Charges {
		for j, c := range b.Charges {
			off, d := offs[[2]int{i, j}], &b.Decisions[i]
			if off == 0 || c.Policy.CountRefused || !b.Decisions[j].Over && !b.Decisions[j].Denied {
				continue
			}
			n, limit := m.at(now, r), uint64(r.Policy.Limit)
			returned := min(off, n.used)
			d.Before, refunded[i] = n.used+refunded[i], refunded[i]+returned
			if n.used -= returned; returned > 0 {
				m.put(r, n)
			}
			d.Charged, d.Remaining = d.Charged-off+returned, limit-min(limit, n.used)
		}
	}
}

// deny marks a group denied and, if its charges were made, undoes them.
func (m model) deny(now Time, b *Batch, lo, hi int, undo bool) {
	b.Denied = true
	for i := lo; i < hi; i++ {
		c, d := b.Charges[i], &b.Decisions[i]
		d.Denied = true
		if c.Refund || c.Policy.CountRefused || d.Over {
			continue
		}
		if undo && d.Charged > 0 {
			n := m.at(now, c)
			m.put(c, modelCounter{n.end, n.used - d.Charged})
		}
		limit := uint64(c.Policy.Limit)
		d.Charged, d.Remaining = 0, limit-min(limit, d.Before)
	}
}

// A tape turns bytes into choices; beyond its end all choices are 0.
type tape []byte

func (t *tape) pick(n int) int {
	if len(*t) == 0 {
		return 0
	}
	v := int((*t)[0])
	*t = (*t)[1:]
	return v % n
}

var (
	modelLimits  = []uint32{3, 0, 1, 2, 10, math.MaxUint32}
	modelHits    = []uint64{1, 0, 2, 3, 1, 1, 5, math.MaxUint32, 1 << 33, math.MaxUint64}
	modelWindows = []time.Duration{
		time.Second, time.Minute, 10 * time.Minute, 7 * 24 * time.Hour, 365 * 24 * time.Hour, MaxWindow,
	}
	modelSteps = []time.Duration{
		0, 1, 0, time.Millisecond, -1, 400 * time.Millisecond, time.Second, -time.Second,
		time.Minute, 24 * time.Hour, -24 * time.Hour, 31 * 24 * time.Hour, 400 * 24 * time.Hour,
	}
)

// nextBatch reads a batch. There are six counters, each with its own window and count_refused and
// two limits.
func (t *tape) nextBatch(b *Batch) {
	b.Reset()
	b.QuotaPass = t.pick(8) == 1
	group := int32(0)
	for range 1 + t.pick(6) {
		n := t.pick(6)
		b.Charges = append(b.Charges, Charge{
			ID: identity.ID{Hi: uint64(n+1) << 32, Lo: uint64(n)},
			Policy: &Policy{
				Algorithm:    FixedWindow,
				Limit:        modelLimits[(n+t.pick(2))%len(modelLimits)],
				Window:       modelWindows[n],
				CountRefused: n%3 == 1,
			},
			Hits:   modelHits[t.pick(len(modelHits))],
			Refund: t.pick(6) == 1,
			Mode:   []Mode{Enforce, Enforce, Shadow, Quota, Watch}[t.pick(5)],
			Group:  group,
		})
		if t.pick(3) > 0 {
			group++
		}
	}
}

// compare plays the tape to a table and to the model.
func compare(tb testing.TB, data []byte) {
	tb.Helper()
	tab, m := newTable(tb, 64<<10), model{}
	start := Time(1_700_000_000_999_999_999)
	now, in := start, tape(data)
	var got, want Batch
	for step := 0; len(in) > 0; step++ {
		// Times stay within the range of a word.
		next := now + Time(modelSteps[in.pick(len(modelSteps))])
		if next > start-Time(300*24*time.Hour) && next < start+Time(MaxWindow) {
			now = next
		}
		in.nextBatch(&got)
		want.QuotaPass, want.Charges = got.QuotaPass, got.Charges
		tab.Decide(now, &got)
		m.decide(now, &want)
		if got.Denied != want.Denied || !slices.Equal(got.Decisions, want.Decisions) {
			tb.Fatalf("step %d at %d, QuotaPass %v, charges\n%s\nDenied = %v, want %v, decisions want -, got +:\n%s",
				step, now, got.QuotaPass, describe(got.Charges), got.Denied, want.Denied,
				cmp.Diff(want.Decisions, got.Decisions))
		}
	}
}

func describe(charges []Charge) string {
	var s strings.Builder
	for _, c := range charges {
		fmt.Fprintf(&s, "  counter %d limit %d hits %d refund %t mode %d group %d countRefused %t\n",
			c.ID.Lo, c.Policy.Limit, c.Hits, c.Refund, c.Mode, c.Group, c.Policy.CountRefused)
	}
	return s.String()
}

// seeded returns the random bytes of a test. LIMITER_SEED repeats a failure.
func seeded(t *testing.T) *rand.ChaCha8 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("LIMITER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must.OK(t, err)
		seed = n
	}
	t.Logf("LIMITER_SEED=%d", seed)
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32)})
}

// TestModel plays random tapes. LIMITER_SEED repeats a failure.
func TestModel(t *testing.T) {
	r := seeded(t)
	for range 300 {
		data := make([]byte, 1500)
		_, _ = r.Read(data)
		compare(t, data)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte("several charges, refunds and groups in one batch, and again, and again"))
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, data) })
}
