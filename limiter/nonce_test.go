package limiter

import (
	"testing"
	"time"
)

// A guesser knows its own leases in the order of their grants, and guesses the leases of others.
type guesser struct{ own []uint64 }

// guesses returns candidates derived from the last own leases: nearby nonces, continuations of
// sequences of two or three, and earlier nonces.
func (g *guesser) guesses(most int) (nonces []uint64) {
	n := len(g.own)
	last, before, first := g.own[n-1]&nonceMask, g.own[n-2]&nonceMask, g.own[n-3]&nonceMask
	step := last - before
	for k := uint64(0); len(nonces) < most; k++ {
		nonces = append(nonces,
			(last+k)&nonceMask, (last-k)&nonceMask, // a sequence
			(last+k*step)&nonceMask, (before-k*step)&nonceMask, // with a step
			(last+k*(step+step-(before-first)))&nonceMask, // with growing steps
			g.own[uint64(n-1)-k%uint64(n)]&nonceMask,      // repeated
		)
	}
	return nonces[:most]
}

// TestLeasesAreUnpredictable lets a client with 1,000 leases guess the leases of others on the same
// counter, granted before, between and after its own. It must not find more than expected by
// chance: each of its 15 times 384 guesses is right with a probability of one in 65,536.
func TestLeasesAreUnpredictable(t *testing.T) {
	const others, guesses = 15, 384
	for name, policy := range map[string]*Policy{
		"permits":      atOnce(40),
		"reservations": {Algorithm: TokenBucket, Limit: 1e6, Burst: 1e6, Window: time.Minute, Reserve: NewReserve(40, time.Minute, true)},
	} {
		for _, pace := range []Time{0, 1, Time(time.Microsecond), Time(time.Millisecond)} {
			t.Run(name+"/"+time.Duration(pace).String(), func(t *testing.T) {
				tab, id, now := newTable(t, 1<<20), counterID(1), benchNow
				begin := func() uint64 {
					now += pace
					return decide(tab, now, Charge{ID: id, Policy: policy, Hits: 1, Reserve: policy.Reserve != nil}).Lease(0)
				}
				end := func(lease uint64) uint64 { return returnLease(tab, now, id, policy, lease) }
				var theirs []uint64
				var g guesser
				for n := range 1000 {
					if n%(1000/others) == 0 && len(theirs) < others {
						theirs = append(theirs, begin())
					}
					g.own = append(g.own, begin())
					if end(g.own[n]) != 1 {
						t.Fatal("a valid lease released nothing")
					}
				}
				freed := uint64(0)
				for cell := range uint64(others + 1) {
					for _, nonce := range g.guesses(guesses) {
						freed += end(FirstLease + cell<<nonceBits + nonce)
					}
				}
				if freed > 1 {
					t.Errorf("%d of %d permits of others were released by %d guesses each", freed, others, guesses)
				}
				returned := uint64(0)
				for _, lease := range theirs {
					returned += end(lease)
				}
				if returned+freed != others {
					t.Errorf("%d leases of others are valid, want all but the %d that were guessed", returned, freed)
				}
			})
		}
	}
}

// TestNoncesAreEvenlyDistributed checks that nonces of one time, of consecutive times and of
// similar counters have evenly distributed bits and do not depend on earlier ones.
func TestNoncesAreEvenlyDistributed(t *testing.T) {
	k := newTable(t, MinBytes).nonces
	const n = 1 << 16
	for name, nonce := range map[string]func(i uint64) uint64{
		"of one time":          func(i uint64) uint64 { return k.nonce(k.salt(counterID(1), benchNow), i) },
		"of consecutive times": func(i uint64) uint64 { return k.nonce(k.salt(counterID(1), benchNow+Time(i)), 1) },
		"of milliseconds": func(i uint64) uint64 {
			return k.nonce(k.salt(counterID(1), benchNow+Time(i)*Time(time.Millisecond)), i)
		},
		"of similar counters": func(i uint64) uint64 { return k.nonce(k.salt(counterID(int(i)), benchNow), 1) },
	} {
		var bits, changes [nonceBits]int
		steps, seen := map[uint64]int{}, map[uint64]int{}
		last := nonce(n)
		for i := range uint64(n) {
			now := nonce(i)
			for b := range nonceBits {
				bits[b] += int(now >> b & 1)
				changes[b] += int((now ^ last) >> b & 1)
			}
			steps[(now-last)&nonceMask]++
			seen[now]++
			last = now
		}
		for b := range nonceBits {
			const off = 5 * 128 // five times the standard deviation
			if max(bits[b], changes[b]) > n/2+off || min(bits[b], changes[b]) < n/2-off {
				t.Errorf("nonces %s: bit %d is set in %d and changes in %d of %d", name, b, bits[b], changes[b], n)
			}
		}
		for what, counts := range map[string]map[uint64]int{"steps": steps, "nonces": seen} {
			for value, times := range counts {
				if times > 14 { // by chance each value occurs once
					t.Errorf("nonces %s: of %d %s, %d are %d", name, n, what, times, value)
				}
			}
		}
	}
}

// TestEndedLeaseIsStale returns ended leases of a permit that others have acquired since, at the
// same time and later. One in 65,536 equals the newer lease.
func TestEndedLeaseIsStale(t *testing.T) {
	p, id := atOnce(1), counterID(1)
	for _, pace := range []Time{0, sec} {
		tab, now := newTable(t, 1<<20), benchNow
		ended, freed, tries := []uint64{}, 0, 0
		for range 1000 {
			lease := acquirePermit(tab, now, id, p)
			for _, old := range ended {
				if tries++; returnLease(tab, now, id, p, old) != 0 {
					freed++
					break
				}
			}
			returnLease(tab, now, id, p, lease)
			ended, now = append(ended, lease), now+pace
		}
		if most := 2 * tries >> nonceBits; freed > most {
			t.Errorf("%d of %d ended leases release a newer permit, want at most %d", freed, tries, most)
		}
		for n := 1; n < len(ended); n++ {
			if ended[n] == ended[n-1] {
				t.Errorf("the lease %d was granted twice in a row", ended[n])
			}
		}
	}
}

// TestTablesHaveDifferentNonces checks that the same request gets different leases in two
// processes.
func TestTablesHaveDifferentNonces(t *testing.T) {
	seen := map[nonceKey]bool{}
	for range 100 {
		k := newNonceKey()
		if seen[k] || k[0] == k[1] || k[2] == k[3] {
			t.Errorf("the key is %x", k)
		}
		seen[k] = true
	}
}
