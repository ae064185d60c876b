package server

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

const (
	// freshAge is the age below which an unused connection may be about to make its first call.
	freshAge = time.Second
	// maxSurplus bounds the number of connections that a search returns.
	maxSurplus = 256
	// A search visits all connections. searchInterval is the minimum time between two searches,
	// unless all results have been used. Results are used for at most maxSurplusAge.
	searchInterval = 50 * time.Millisecond
	maxSurplusAge  = time.Second
)

// Classes of the connections of a full listener, in the order in which they are closed.
const (
	classExcess = iota // idle, and its address has more than an eighth of all connections
	classUnused        // without a call, and older than freshAge
	classIdle
	classBusy
)

// rank orders the connections of a full listener. The lowest is closed first.
type rank struct {
	conn       *boundedConn
	class      int
	count      int // number of connections of the address
	gracefully bool
	usage      transport.Usage
}

// compareRanks returns a negative number if a is closed before b. It compares the classes, then the
// numbers of connections of the addresses, in descending order. Then connections that need no
// graceful close are first, and last it compares how long the connections have been idle.
func compareRanks(a, b rank) int {
	byGrace := 0
	if a.gracefully != b.gracefully {
		byGrace = 1
		if b.gracefully {
			byGrace = -1
		}
	}
	return cmp.Or(a.class-b.class, b.count-a.count, byGrace, cmp.Compare(a.usage.Since, b.usage.Since))
}

func (l *boundedListener) rankLocked(c *boundedConn, now time.Duration) rank {
	r := rank{conn: c, count: l.byAddress[c.address], usage: c.usageLocked()}
	switch {
	case r.usage.Busy:
		r.class = classBusy
		r.gracefully = true
	case r.count > l.max/8:
		r.class = classExcess
		r.gracefully = r.usage.Used
	case !r.usage.Used && now-c.openedAt >= freshAge:
		r.class = classUnused
	default:
		r.class = classIdle
		r.gracefully = true
	}
	return r
}

// surplus contains the connections to close next, as found by the last search.
type surplus struct {
	ranks    []rank // sorted
	searched time.Duration
}

// searchLocked finds the connections to close next.
func (l *boundedListener) searchLocked(now time.Duration) {
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

// pickSurplusLocked returns the connection to close so that c can be admitted, and whether to close
// it gracefully. It returns nil if c must be rejected instead.
func (l *boundedListener) pickSurplusLocked(c *boundedConn) (surplus *boundedConn, gracefully bool) {
	now := c.openedAt
	s := &l.surplus
	if now-s.searched >= maxSurplusAge {
		s.ranks = s.ranks[:0]
	}
	surplus, gracefully = l.nextSurplusLocked(c.address)
	if surplus == nil && (len(s.ranks) == 0 || now-s.searched >= searchInterval) {
		l.searchLocked(now)
		surplus, gracefully = l.nextSurplusLocked(c.address)
	}
	return surplus, gracefully
}

// nextSurplusLocked returns the first surplus connection whose usage has not changed since the
// search. It returns nil if a connection of the given address may not replace it.
func (l *boundedListener) nextSurplusLocked(address netip.Addr) (surplus *boundedConn, gracefully bool) {
	s := &l.surplus
	for len(s.ranks) > 0 {
		r := s.ranks[0]
		changed := l.changedLocked(&r)
		if !changed && !l.mayReplaceLocked(&r, address) {
			return nil, false
		}
		s.ranks = slices.Delete(s.ranks, 0, 1)
		if !changed {
			return r.conn, r.gracefully
		}
	}
	return nil, false
}

// changedLocked reports whether the rank r of a connection is outdated.
func (l *boundedListener) changedLocked(r *rank) bool {
	if _, ok := l.open[r.conn]; !ok {
		return true
	}
	usage := r.conn.usageLocked()
	return usage.Busy != r.usage.Busy || !usage.Busy && usage != r.usage
}

// mayReplaceLocked reports whether a connection of the given address may replace the connection
// with rank r. A connection with an open call is only replaced if its address has at least twice as
// many connections as the given address would have afterwards. An address with more than an eighth
// of all connections only replaces connections of addresses that have at least as many.
func (l *boundedListener) mayReplaceLocked(r *rank, address netip.Addr) bool {
	count := l.byAddress[address]
	other := l.byAddress[r.conn.address]
	if r.class == classBusy {
		return other >= 2*(count+1)
	}
	return count <= l.max/8 || other >= count
}
