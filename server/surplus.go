package server

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

const (
	// freshTime is the age below which an unused connection may be about to make its first call.
	freshTime = time.Second
	// maxSurplus is the largest number of connections that one search finds.
	maxSurplus = 256
	// searchAgain is the shortest time until a search that is not used up is repeated, and surplusTime the longest
	// that its result is used: a search looks at all connections.
	searchAgain = 50 * time.Millisecond
	surplusTime = time.Second
)

// The classes of the connections of a full listener, from the first that makes room to the last.
const (
	classExcess = iota // idle, of an address with more than an eighth of the connections
	classUnused        // without a call, and older than freshTime
	classIdle
	classBusy
)

// rank is the value of a connection of a full listener. The lowest makes room first.
type rank struct {
	conn   *boundedConn
	class  int
	count  int // number of connections of the address
	gently bool
	usage  transport.Usage
}

// compareRanks returns a negative number if a makes room before b: by its class, then by its address, of which the one
// with the most connections comes first, and then by its use. Connections that need not end gently come first, and
// then those that have been idle for longest.
func compareRanks(a, b rank) int {
	byUse := 0
	if a.gently != b.gently {
		if byUse = 1; b.gently {
			byUse = -1
		}
	}
	return cmp.Or(a.class-b.class, b.count-a.count, byUse, cmp.Compare(a.usage.Since, b.usage.Since))
}

// rankLocked returns the rank of c.
func (l *connections) rankLocked(c *boundedConn, now time.Duration) rank {
	r := rank{conn: c, count: l.byAddress[c.address], usage: c.usageLocked()}
	switch {
	case r.usage.Busy:
		r.class, r.gently = classBusy, true
	case r.count > l.max/8:
		r.class, r.gently = classExcess, r.usage.Used
	case !r.usage.Used && now-c.begun >= freshTime:
		r.class = classUnused
	default:
		r.class, r.gently = classIdle, true
	}
	return r
}

// surplus are the connections that make room next, as one search has found them.
type surplus struct {
	ranks    []rank // the first makes room first
	searched time.Duration
}

// searchLocked finds the connections that make room next.
func (l *connections) searchLocked(now time.Duration) {
	n := min(max(l.max/16, 1), maxSurplus)
	ranks := l.surplus.ranks[:0]
	for c := range l.open {
		r := l.rankLocked(c, now)
		if len(ranks) == n {
			if compareRanks(r, ranks[n-1]) >= 0 {
				continue
			}
			ranks = ranks[:n-1]
		}
		i, _ := slices.BinarySearchFunc(ranks, r, compareRanks)
		ranks = slices.Insert(ranks, i, r)
	}
	l.surplus = surplus{ranks, now}
}

// takeSurplusLocked returns the connection that makes room for c, and reports whether it is to end gently. It returns
// nil if each of the others has a better claim than c.
func (l *connections) takeSurplusLocked(c *boundedConn) (surplus *boundedConn, gently bool) {
	now, s := c.begun, &l.surplus
	if now-s.searched >= surplusTime {
		s.ranks = s.ranks[:0]
	}
	surplus, gently = l.nextSurplusLocked(c.address)
	if surplus == nil && (len(s.ranks) == 0 || now-s.searched >= searchAgain) {
		l.searchLocked(now)
		surplus, gently = l.nextSurplusLocked(c.address)
	}
	return surplus, gently
}

// nextSurplusLocked returns the first of the surplus connections whose use has not changed, if it may make room for a
// connection of the address.
func (l *connections) nextSurplusLocked(address netip.Addr) (surplus *boundedConn, gently bool) {
	s := &l.surplus
	for len(s.ranks) > 0 {
		r := s.ranks[0]
		changed := l.changedLocked(&r)
		if !changed && !l.yieldsLocked(&r, address) {
			return nil, false
		}
		s.ranks = slices.Delete(s.ranks, 0, 1)
		if !changed {
			return r.conn, r.gently
		}
	}
	return nil, false
}

// changedLocked reports whether r is no longer the rank of its connection.
func (l *connections) changedLocked(r *rank) bool {
	if _, ok := l.open[r.conn]; !ok {
		return true
	}
	usage := r.conn.usageLocked()
	return usage.Busy != r.usage.Busy || !usage.Busy && usage != r.usage
}

// yieldsLocked reports whether the connection with the rank may make room for one of the address. One with an open call
// does only for an address that has fewer than half as many connections. An address with more than an eighth of all
// connections gets no room from those that have fewer.
func (l *connections) yieldsLocked(r *rank, address netip.Addr) bool {
	count, of := l.byAddress[address], l.byAddress[r.conn.address]
	if r.class == classBusy {
		return of >= 2*(count+1)
	}
	return count <= l.max/8 || of >= count
}
