package answer

import (
	"container/heap"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// mostLeases is how many leases the book has. One more, and it forgets the one that is the first to be free by
// itself: that is all that will free it, unless Envoy brings it back.
const mostLeases = 1 << 16

// A book has the leases that this process has given and that are still out: who can bring them back, and how long
// they last. So it can give back those that nobody will bring, and count those that nobody has brought.
//
// Only requests that have to do with leases come to it. Its lock is never held over anything that waits.
type book struct {
	service *Service
	grace   time.Duration // how long a client may be away; 0: for any time
	latest  atomic.Int64  // the time of the newest request
	panics  *telemetry.Panics

	mu     sync.Mutex
	leases map[leaseKey]*lease
	queue  queue // by when they are free by themselves
	peers  map[string]*peer
	spare  []*lease // for use again, so that calls leave no garbage
	// originBytes is the length of all origins.
	originBytes int
}

// mostSpare bounds book.spare.
const mostSpare = 4096

// leaseKey names a lease: numbers are those of a counter.
type leaseKey struct {
	id     identity.ID
	number uint64
}

// lease is one that is out.
type lease struct {
	given
	policy limiter.Policy // a copy of its own: the charge's may be memory of an exchange
	origin []byte         // see appendOrigin; empty if the book has no room for it

	sibling *lease // of the same call, or in a list that is to be given back
	place   int    // in the queue
}

// given is what a request knows of a lease that it is given.
type given struct {
	key       leaseKey
	partition *limiter.Partition
	name      []byte // of the counter, with a store
	counters  *telemetry.RuleCounters
	expires   limiter.Time
	table     bool // a row of a table may have the limit's numbers

	bearer *Bearer // nil: nobody sees what becomes of the call
	stream uint32
}

// Bearer is a connection whose calls are given leases. Its methods, and those of the exchanges that refer to it, may
// be called concurrently.
type Bearer struct {
	Addr   net.Addr // of the client, for errors; optional
	book   *book
	peer   *peer
	number uint64            // of the connections of its client
	calls  map[uint32]*lease // that are out, by the stream of their call
	how    Ending            // once it has ended
	ended  bool
	bears  bool // it had calls that had to do with leases
}

// Ending is how a connection has ended.
type Ending byte

const (
	// EndedInOrder is by our doing, or after a GOAWAY or the like. Its client lives.
	EndedInOrder Ending = iota
	// EndedAfterReply is by its client, as soon as that had a reply. So ends the connection of an Envoy that makes only
	// so many requests on one, and now and then that of one that is killed.
	EndedAfterReply
	// EndedInSilence is by its client, in the middle of nothing.
	EndedInSilence
	// EndedDeaf is by us, because its client did not answer a ping. It does not live.
	EndedDeaf
)

// peer is a client with its connections.
type peer struct {
	name string
	open int                  // connections
	left map[*Bearer]struct{} // those that have ended and whose leases are out
	// joined counts the connections. An end is after those of a number up to joined then.
	joined uint64
	lostAt limiter.Time // when it last seemed dead without a sign of life since; 0 if it did not
	lost   uint64       // what joined was then
	spent  uint64       // likewise when it last closed a connection after a reply

	// It closed the last one at goneAt, after so many calls, of which most is the most so far.
	goneAt     limiter.Time
	gone, most uint32

	runFrom, heardAt limiter.Time // of calls that came without a pause

	// deprived has leases of its own that were given back because it seemed dead. If it brings one of them, or one of a
	// connection that it has closed in silence, it closes connections while the requests live on for which it was given
	// leases on them, and to lose one means nothing. So it is with those that it closes after a reply, if it spends them.
	deprived       map[leaseKey]struct{}
	closes, spends bool
}

// mostDeprived is the largest number of leases in peer.deprived. If the requests live on, the client brings all of them.
const mostDeprived = 64

// mostPeers is how many clients the book knows that have neither connections nor leases.
const mostPeers = 1024

func newBook(s *Service, grace time.Duration) *book {
	return &book{service: s, grace: grace, leases: map[leaseKey]*lease{}, peers: map[string]*peer{}}
}

// heard notes that a client has made a call that has to do with leases.
func (k *book) heard(b *Bearer, now limiter.Time) {
	for latest := k.latest.Load(); int64(now) > latest && !k.latest.CompareAndSwap(latest, int64(now)); {
		latest = k.latest.Load()
	}
	if b == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b.bears = true
	p := b.peer
	if now-p.heardAt > k.pause() {
		p.runFrom = now
	}
	p.heardAt = max(p.heardAt, now)
	if p.spent > 0 && b.number > p.spent {
		p.spends = true
	}
	if b.number > p.lost {
		p.lostAt = 0
	}
}

// pause is how long a client that is busy does not pause.
func (k *book) pause() limiter.Time { return limiter.Time(k.grace / 4) }

// busyLocked reports whether a client has made calls for so long without a pause that to hear none within the grace
// says that it is dead.
func (k *book) busyLocked(p *peer, now limiter.Time) bool {
	return now-p.heardAt <= k.pause() && p.heardAt-p.runFrom >= limiter.Time(4*k.grace)
}

// seemsDeadLocked reports whether a client that has closed a connection after so many calls seems to be dead. One that makes
// a certain number of calls on each closes none after fewer, nor two at once after different numbers.
func (k *book) seemsDeadLocked(p *peer, now limiter.Time, how Ending, calls uint32) bool {
	switch {
	case p.closes:
		return false
	case calls < p.most, p.goneAt > 0 && calls > p.gone && now-p.goneAt <= limiter.Time(k.grace):
		return true
	case p.spends:
		return false
	}
	return how == EndedInSilence || k.busyLocked(p, now)
}

// enter enters a lease of a counter with that policy. The limit, the domain and the descriptor are those of its origin.
func (k *book) enter(now limiter.Time, g *given, policy *limiter.Policy, limit string, domain []byte, d *descriptors.Descriptor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expireLocked(now)
	if old := k.leases[g.key]; old != nil {
		k.forgetLocked(old)
	}
	if len(k.queue) >= mostLeases {
		k.forgetLocked(k.queue[0])
	}
	var l *lease
	if last := len(k.spare) - 1; last >= 0 {
		l, k.spare = k.spare[last], k.spare[:last]
	} else {
		l = new(lease)
	}
	l.given = *g
	l.policy = policy.Bare(l.policy.Reserve)
	l.origin = appendOrigin(l.origin, limit, domain, d)
	if k.originBytes+len(l.origin) > mostOriginBytes {
		l.origin = spareOrigin(l.origin)
	}
	k.originBytes += len(l.origin)
	k.leases[l.key] = l
	heap.Push(&k.queue, l)
	if !k.service.later {
		l.counters.Hold(1)
	}
	if b := l.bearer; b != nil {
		if b.calls == nil {
			b.calls = map[uint32]*lease{}
		}
		l.sibling = b.calls[l.stream]
		b.calls[l.stream] = l
		if b.ended { // a store has decided the call since
			b.peer.left[b] = struct{}{}
		}
	}
}

// ended notes that a client has brought a lease back, by its connection b. It reports whether the lease was out.
func (k *book) ended(b *Bearer, key leaseKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	switch {
	case b == nil:
	case l == nil:
		_, deprived := b.peer.deprived[key]
		b.peer.closes = b.peer.closes || deprived
	case l.bearer != nil && l.bearer.peer == b.peer && l.bearer.ended && l.bearer.how == EndedInSilence:
		b.peer.closes = true
	}
	if l != nil {
		k.forgetLocked(l)
	}
	return l != nil
}

// forgetCounter forgets the leases of a counter that holds nothing any more.
func (k *book) forgetCounter(id identity.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, l := range k.leases {
		if key.id == id {
			k.forgetLocked(l)
		}
	}
}

// forgetLocked takes a lease out of the book that nobody will look at again.
func (k *book) forgetLocked(l *lease) {
	if k.dropLocked(l); len(k.spare) < mostSpare {
		*l = lease{policy: limiter.Policy{Reserve: l.policy.Reserve}, origin: spareOrigin(l.origin)} // memory to use again
		k.spare = append(k.spare, l)
	}
}

// dropLocked takes a lease out of the book.
func (k *book) dropLocked(l *lease) {
	delete(k.leases, l.key)
	k.originBytes -= len(l.origin)
	heap.Remove(&k.queue, l.place)
	if !k.service.later { // else another process may bring it back
		l.counters.Hold(-1)
	}
	b := l.bearer
	if b == nil {
		return
	}
	first := b.calls[l.stream]
	switch {
	case first == l && l.sibling == nil:
		delete(b.calls, l.stream)
	case first == l:
		b.calls[l.stream] = l.sibling
	default:
		for first.sibling != l {
			first = first.sibling
		}
		first.sibling = l.sibling
	}
	l.sibling = nil
	if b.ended && len(b.calls) == 0 {
		delete(b.peer.left, b)
		k.leavePeerLocked(b.peer)
	}
}

// expireLocked forgets the leases that have lasted for as long as they do.
func (k *book) expireLocked(now limiter.Time) {
	for len(k.queue) > 0 && k.queue[0].expires <= now {
		l := k.queue[0]
		if !k.service.later {
			l.counters.Expired()
		}
		k.forgetLocked(l)
	}
}

// expire is expireLocked, for whoever wants to know how many are out.
func (k *book) expire() {
	now := k.service.time()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expireLocked(now)
}

// takeCall takes the leases of a call out of the book, as a list.
func (k *book) takeCall(b *Bearer, stream uint32) (list *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := b.calls[stream]; l != nil; l = b.calls[stream] {
		k.dropLocked(l)
		l.sibling, list = list, l
	}
	return list
}

// join begins a connection of the client with that name.
func (k *book) join(name string) *Bearer {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.peers[name]
	if p == nil {
		p = &peer{name: name, left: map[*Bearer]struct{}{}}
		k.peers[name] = p
	}
	p.open++
	p.joined++
	return &Bearer{book: k, peer: p, number: p.joined}
}

// leave ends a connection. If its client has lost its last one and gets no other within the grace, what it holds is
// given back.
func (k *book) leave(b *Bearer, how Ending, calls uint32) {
	now := k.service.time()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := b.peer
	b.ended, b.how = true, how
	if p.open--; len(b.calls) > 0 {
		p.left[b] = struct{}{}
	}
	switch {
	case !b.bears:
	case how == EndedInOrder:
		p.lostAt = 0
	case how == EndedDeaf, k.seemsDeadLocked(p, now, how, calls):
		p.lostAt, p.lost = max(now, 1), p.joined
	}
	if b.bears && how != EndedInOrder {
		p.goneAt, p.gone, p.most = now, calls, max(p.most, calls)
	}
	if b.bears && how == EndedAfterReply {
		p.spent = p.joined
	}
	if p.open > 0 || len(p.left) == 0 {
		k.leavePeerLocked(p)
		return
	}
	if p.lostAt > 0 && now-p.lostAt <= limiter.Time(k.grace) && k.grace > 0 {
		joined := p.joined
		time.AfterFunc(k.grace, func() { k.bury(p, joined) })
	}
}

// caught is deferred by what nobody waits for. A panic there is a bug of ours, and must not end the process.
func (k *book) caught() {
	if p := recover(); p != nil {
		k.panics.Caught(p)
	}
}

// bury gives back the leases of a client that has had no connection since.
func (k *book) bury(p *peer, joined uint64) {
	defer k.caught()
	if list := k.takePeer(p, joined); list != nil {
		k.service.giveBackMany(list, false, k.service.metrics.Leases.Connection, func() {})
	}
}

// takePeer takes the leases of such a client out of the book, as a list.
func (k *book) takePeer(p *peer, joined uint64) (list *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.joined != joined {
		return nil
	}
	if len(p.left) > 0 {
		p.deprived = map[leaseKey]struct{}{}
	}
	for b := range p.left {
		for _, l := range b.calls {
			for l != nil {
				next := l.sibling
				if len(p.deprived) < mostDeprived {
					p.deprived[l.key] = struct{}{}
				}
				k.dropLocked(l)
				l.sibling, list = list, l
				l = next
			}
		}
	}
	return list
}

// leavePeerLocked forgets a client that has neither connections nor leases, unless it is known for something. If it has been
// forgotten before, another peer may have its name now.
func (k *book) leavePeerLocked(p *peer) {
	if k.peers[p.name] == p && p.open == 0 && len(p.left) == 0 && (!p.closes && len(p.deprived) == 0 || len(k.peers) > mostPeers) {
		delete(k.peers, p.name)
	}
}
