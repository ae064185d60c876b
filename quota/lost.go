package quota

import (
	"slices"
	"time"
)

// peer is who streams come from, one after another.
type peer struct {
	open   int
	newest Holder
	// alone is from when on its streams can be told apart: once all that it held while it had two
	// streams has ended.
	alone Time
	gone  Time // when it lost its last stream
	// several is until when streams of it that are open at the same time are taken for several Envoys.
	several Time
}

func (d *Divider) joinPeer(s *stream, id uint64) {
	if id == 0 || s.peer != nil {
		return
	}
	if len(d.peers) > 64+2*len(d.streams) && d.now-d.purged > time.Second {
		d.purged = d.now
		for id, p := range d.peers {
			if p.open == 0 && d.now-p.gone > 2*(d.o.TTL+d.o.Delta) {
				delete(d.peers, id)
			}
		}
	}
	p := d.peers[id]
	if p == nil {
		p = &peer{}
		d.peers[id] = p
	}
	s.peer = p
	p.open++
	p.newest = s.holder
}

// heard is called at each event of a stream. An event of a stream that is not its peer's newest shows that the peer is several
// Envoys.
func (d *Divider) heard(s *stream) {
	if p := s.peer; p != nil && p.newest != s.holder && d.paused <= d.now { // after a stall streams are read in any order
		d.mix(p)
	}
}

// leavePeer removes a closed stream from its peer. A stream that was silent since its peer opened a newer one is the earlier
// stream of the same Envoy, whose end was noticed late.
func (d *Divider) leavePeer(s *stream) {
	p := s.peer
	if p == nil {
		return
	}
	if p.open > 1 && p.newest == s.holder || d.now < p.alone {
		d.mix(p)
	}
	s.succeeded = p.newest != s.holder
	p.open--
	p.gone = d.now
}

// several is how long a peer that was several Envoys at once counts as such.
const several = 10 * time.Minute

func (d *Divider) mix(p *peer) {
	p.alone = d.now + d.o.TTL + d.o.Delta + 1
	p.several = d.now + several
}

// lose keeps the rate of a closed stream's share as lost.
func (d *Divider) lose(b *bucket, s *share) {
	until := d.lostUntil(s)
	if s.high > 0 && until > d.now {
		st := s.stream
		d.addLost(b, lost{until: until, rate: int64(s.high), peer: st.peer, client: st.client, succeeded: st.succeeded})
		if len(b.lost) > mostLost {
			d.mergeLost(b)
		}
	}
}

// lostUntil returns when the rate of a closed stream's share ends.
func (d *Divider) lostUntil(s *share) Time {
	if s.is(outstanding) {
		return s.stream.closedAt + d.o.TTL + d.o.Delta
	}
	return s.until
}

// mostLost bounds a bucket's list of what is lost.
const mostLost = 64

func (d *Divider) addLost(b *bucket, l lost) {
	b.lost = append(b.lost, l)
	d.charge(l.payer(b), lostBytes)
}

// payer returns the client that is charged for something lost.
func (l *lost) payer(b *bucket) *client {
	if l.client == nil {
		return b.owner
	}
	return l.client
}

// mergeLost merges the older half of the lost rates: those of one client, and all of them if that is not enough.
func (d *Divider) mergeLost(b *bucket) {
	older := b.lost[:mostLost/2]
	kept := make([]lost, 0, mostLost+1)
	merge := func(same func(a, b *lost) bool) {
		kept = kept[:0]
		for i := range older {
			l := &older[i]
			at := -1
			if !l.unknown {
				at = slices.IndexFunc(kept, func(k lost) bool { return !k.unknown && same(&k, l) })
			}
			if at < 0 {
				kept = append(kept, *l)
				continue
			}
			k := &kept[at]
			d.charge(l.payer(b), -lostBytes)
			k.until, k.rate, k.peer = max(k.until, l.until), k.rate+l.rate, nil
			if k.client != l.client {
				d.charge(k.payer(b), -lostBytes)
				k.client = nil
				d.charge(b.owner, lostBytes)
			}
		}
	}
	merge(func(a, b *lost) bool { return a.client == b.client })
	if len(kept) > mostLost/4 {
		older = slices.Clone(kept)
		merge(func(_, _ *lost) bool { return true })
	}
	b.lost = append(kept, b.lost[mostLost/2:]...)
}

// expire ends what has outlived its time, makes the shares of closed streams lost, and gives what is lost
// back to peers that came back. It returns the number of shares that have ended.
func (d *Divider) expire(b *bucket) (n int) {
	for i := range b.shares {
		switch s := &b.shares[i]; {
		case d.closed > 0 && s.stream.closed:
			d.lose(b, s)
			s.state |= ended
			n++
		case s.high > 0 && !s.is(outstanding) && s.until <= d.now:
			s.high = 0
			s.state &^= assigned
			s.renew(d.now + d.o.Patience)
		}
	}
	if b.lost == nil {
		return n
	}
	kept := b.lost[:0]
	for _, l := range b.lost {
		if l.until > d.now && !d.takeOver(b, l) {
			kept = append(kept, l)
		} else {
			d.charge(l.payer(b), -lostBytes)
		}
	}
	clear(b.lost[len(kept):])
	if b.lost = kept; len(kept) == 0 {
		b.lost = nil
	} else if cap(kept) > 2*len(kept)+8 {
		b.lost = slices.Clone(kept)
	}
	return n
}

// takeOver reports whether something lost is now held by the stream that its peer came back with. That
// has it until it is told something else.
func (d *Divider) takeOver(b *bucket, l lost) bool {
	p := l.peer
	if p == nil || p.open != 1 || d.now < p.alone {
		return false
	}
	i, found := b.find(p.newest)
	if !found || b.shares[i].is(ended) || l.succeeded && (d.now < p.several || !b.shares[i].is(returned)) {
		return false
	}
	if s := &b.shares[i]; !s.is(arrived) {
		s.high = max(s.high, Rate(min(l.rate, unlimited)))
		s.until = max(s.until, l.until)
		d.counts.TakenOver++
	}
	return true
}

// learning is how long Envoys take to come back after a restart: they do at their next report, which is
// due every 5 s.
const learning = 6 * time.Second

// learn counts all that others may have assigned as lost.
func (d *Divider) learn(b *bucket) {
	if b.limit == nil || b.limit.Verdict != Divide || b.learning() {
		return
	}
	if until := max(d.learnt, d.others(b)); until > d.now {
		d.addLost(b, lost{until: until, rate: b.limit.rate(), unknown: true})
	}
}

// others returns when all has ended that others assigned who divided a bucket's limit, 0 if nobody did.
func (d *Divider) others(b *bucket) Time {
	if b.limit == nil || b.limit.Since == 0 {
		return 0
	}
	return b.limit.Since + d.o.TTL + d.o.Delta
}

func (b *bucket) learning() bool {
	return slices.ContainsFunc(b.lost, func(l lost) bool { return l.unknown })
}

// credit moves to a new share the rate at which its holder says that it admitted requests: that much a
// predecessor is taken to have assigned to it.
func (s *share) credit(b *bucket, until Time, r Report) {
	for i := range b.lost {
		if l := &b.lost[i]; l.unknown {
			rate := min(l.rate, r.admitted(), int64(MaxRate))
			l.rate -= rate
			s.high, s.until = Rate(rate), until
			return
		}
	}
}

// admitted returns the rate of what a report says was admitted, at the least.
func (r *Report) admitted() int64 {
	return int64(float64(min(r.Allowed, mostCounted)) * float64(Fill) / float64(r.span()))
}
