package main

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// One limiter, the time given: so many hits a second, so many at once. When it
// begins, half of these are used, and hits come as fast as they are admitted.
// x/time/rate's is in hand; sluice's is the only counter of a table and has to be
// found there.
const (
	givenRate  = 1000
	givenBurst = 1000
)

var epoch = time.Unix(1_700_000_000, 0)

// xrateGiven is AllowN of x/time/rate.
func xrateGiven(deny bool) batch {
	l, t, step := rate.NewLimiter(givenRate, givenBurst), epoch, time.Second/givenRate
	l.AllowN(t, givenBurst/2)
	if deny {
		l, step = rate.NewLimiter(rate.Every(rarely), 1), 1
		l.AllowN(t, 1)
	}
	return func(n int) (admitted int) {
		at := t
		for range n {
			at = at.Add(step)
			if l.AllowN(at, 1) {
				admitted++
			}
		}
		t = at
		return admitted
	}
}

// givenPolicy returns what x/time/rate's limiter allows, by p, and the time between
// hits.
func givenPolicy(p *policy, deny bool) (counts limiter.Policy, step limiter.Time) {
	step = limiter.Time(time.Second / givenRate)
	switch {
	case deny:
		return p.with(1, rarely), 1
	case p.fast && !p.oneWord: // a ring gives back a slot later
		step = step * 12 / 10
	}
	return p.with(givenBurst, time.Second), step
}

// givenHits is how many hits a limiter has had when it begins.
func givenHits(deny bool) uint64 {
	if deny {
		return 1
	}
	return givenBurst / 2
}

// sluiceGiven is Decide with one charge on the only counter of a table.
func sluiceGiven(p *policy, deny bool) (batch, error) {
	counts, step := givenPolicy(p, deny)
	now := limiter.Time(epoch.UnixNano())
	t, err := p.newTable(counts, 1)
	if err != nil {
		return nil, err
	}
	counts.Prepare()
	b := &limiter.Batch{Charges: []limiter.Charge{{ID: identity.ID{Hi: 1 << 8, Lo: 1}, Policy: &counts, Hits: givenHits(deny)}}}
	t.Decide(now, b)
	b.Charges[0].Hits = 1
	return func(n int) (admitted int) {
		for range n {
			now += step
			t.Decide(now, b)
			if !b.Denied {
				admitted++
			}
		}
		return admitted
	}, nil
}

// measureGiven measures decisions alone, admitted and denied ones.
func (m *run) measureGiven(ctx context.Context) error {
	var lanes []lane
	for _, deny := range []bool{false, true} {
		name := "given"
		if deny {
			name = "given denied"
		}
		lanes = append(lanes, lane{name, xrate, []batch{xrateGiven(deny)}})
		for i := range m.policies {
			p := &m.policies[i]
			b, err := sluiceGiven(p, deny)
			if err != nil {
				return err
			}
			lanes = append(lanes, lane{name, p.title(), []batch{b}})
		}
	}
	return m.rounds(ctx, lanes)
}

// pairUsers is how many users the cases with two limits have.
const pairUsers = 1000

// pairs decides on two limits of random users: now on the one, now on the other, or
// on both together, and then the second denies if deny is set.
func pairs(p *policy, two, deny bool) (batch, error) {
	minute, day := p.with(p.maxLimit, time.Minute), p.with(p.maxLimit, 24*time.Hour)
	if deny {
		day = p.with(1, rarely)
	}
	t, err := p.newTable(minute, 2*pairUsers)
	if err != nil {
		return nil, err
	}
	prefix := identity.NewKey().Hasher()
	ids := make([][2]identity.ID, pairUsers)
	for i := range ids {
		for j := range ids[i] {
			h := prefix
			h.Word(uint64(j))
			h.Bytes(newKey(uint32(i)))
			ids[i][j] = h.Sum()
		}
	}
	numbers, at := sequence(pairUsers, false), 0
	now, step := limiter.Time(epoch.UnixNano()), limiter.Time(time.Microsecond)
	if p.maxLimit < 1<<20 { // hits must have gone when a user comes again
		step = limiter.Time(time.Minute) / pairUsers
	}
	minute.Prepare()
	day.Prepare()
	b := &limiter.Batch{Charges: []limiter.Charge{{Policy: &minute, Hits: 1}}}
	limits := [2]*limiter.Policy{&minute, &day}
	if two {
		b.Charges = append(b.Charges, limiter.Charge{Policy: &day, Hits: 1})
	}
	decide := func(n int) (admitted int) {
		for range n {
			id := &ids[numbers[at%len(numbers)]]
			at++
			now += step
			if two {
				b.Charges[0].ID, b.Charges[1].ID = id[0], id[1]
			} else {
				b.Charges[0].ID, b.Charges[0].Policy = id[at&1], limits[at&1]
			}
			t.Decide(now, b)
			if !b.Denied {
				admitted++
			}
		}
		return admitted
	}
	decide(sequenceLength / 16) // make all counters
	return decide, nil
}

// measurePairs measures two limits on one request beside one.
func (m *run) measurePairs(ctx context.Context) error {
	var lanes []lane
	for i := range m.policies {
		for _, k := range []struct {
			name      string
			two, deny bool
		}{{"one limit", false, false}, {"two limits", true, false}, {"two limits denied", true, true}} {
			b, err := pairs(&m.policies[i], k.two, k.deny)
			if err != nil {
				return err
			}
			lanes = append(lanes, lane{k.name, m.policies[i].title(), []batch{b}})
		}
	}
	return m.rounds(ctx, lanes)
}
