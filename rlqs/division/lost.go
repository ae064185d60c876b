package division

import (
	"slices"
	"time"
)

// peer is the origin of streams, usually an address.
type peer struct {
	open      int // number of open streams
	newest    StreamID
	idleSince Time // when its last stream was closed
	// exclusiveFrom and sharedUntil are set when two streams report, which shows that the peer is
	// several Envoys. Until exclusiveFrom, when all rates assigned meanwhile have expired, no stream
	// inherits lost rates. Until sharedUntil, none inherits those of a succeeded stream.
	exclusiveFrom Time
	sharedUntil   Time
}

func (d *Divider) joinPeer(s *stream, id uint64) {
	if id == 0 || s.peer != nil {
		return
	}
	if len(d.peers) > 64+2*len(d.streams) && d.now-d.peersPurgedAt > time.Second {
		d.peersPurgedAt = d.now
		for id, p := range d.peers {
			if p.open == 0 && d.now-p.idleSince > 2*maxLife {
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
	p.newest = s.id
}

// checkPeer is called at each event of a stream. An event of a stream that is not its peer's newest
// shows that several Envoys share the address.
func (d *Divider) checkPeer(s *stream) {
	if p := s.peer; p != nil && p.newest != s.id && d.pausedUntil <= d.now { // after a stall streams are read in any order
		d.markShared(p)
	}
}

// leavePeer removes a closed stream from its peer. A stream that was silent since its peer opened a
// newer one is the earlier stream of the same Envoy, whose end was noticed late.
func (d *Divider) leavePeer(s *stream) {
	p := s.peer
	if p == nil {
		return
	}
	if p.open > 1 && p.newest == s.id || d.now < p.exclusiveFrom {
		d.markShared(p)
	}
	s.succeeded = p.newest != s.id
	p.open--
	p.idleSince = d.now
}

// sharedPeriod is how long a peer that was several Envoys counts as such.
const sharedPeriod = 10 * time.Minute

func (d *Divider) markShared(p *peer) {
	p.exclusiveFrom = d.now + maxLife + 1
	p.sharedUntil = d.now + sharedPeriod
}

// addLostShare adds the rate of a closed stream's share to the lost rates.
func (d *Divider) addLostShare(b *bucket, s *share) {
	until := d.lostExpiry(s)
	if s.maxRate > 0 && until > d.now {
		st := s.stream
		l := lost{expiry: until, rate: int64(s.maxRate), peer: st.peer, client: st.client, succeeded: st.succeeded}
		// An unconfirmed rate may itself be inherited. It is not inherited again, since each stream could
		// extend it. While the divider learns, other Envoys of the address may not have reconnected yet.
		if !s.has(everConfirmed) || d.now < d.learnUntil {
			l.peer = nil
		}
		d.addLost(b, l)
		if len(b.lost) > maxLost {
			d.mergeLost(b)
		}
	}
}

// lostExpiry returns when the rate of a closed stream's share expires.
func (d *Divider) lostExpiry(s *share) Time {
	if s.has(expiryUnknown) {
		return s.stream.closedAt + maxLife
	}
	return s.expiry
}

// maxLost bounds the lost rates of a bucket.
const maxLost = 64

func (d *Divider) addLost(b *bucket, l lost) {
	b.lost = append(b.lost, l)
	d.addBytes(l.payer(b), lostBytes)
}

// payer returns the client to whose memory a lost rate is added.
func (l *lost) payer(b *bucket) *client {
	if l.client == nil {
		return b.owner
	}
	return l.client
}

// mergeLost merges the older half of the lost rates: first those of the same client, and then all
// if too many are left.
func (d *Divider) mergeLost(b *bucket) {
	older := b.lost[:maxLost/2]
	kept := make([]lost, 0, maxLost+1)
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
			d.addBytes(l.payer(b), -lostBytes)
			k.expiry = max(k.expiry, l.expiry)
			k.rate += l.rate
			k.peer = nil
			if k.client != l.client { // the owner pays for a rate of several clients
				d.addBytes(k.payer(b), -lostBytes)
				k.client = nil
				d.addBytes(b.owner, lostBytes)
			}
		}
	}
	merge(func(a, b *lost) bool { return a.client == b.client })
	if len(kept) > maxLost/4 {
		older = slices.Clone(kept)
		merge(func(_, _ *lost) bool { return true })
	}
	b.lost = append(kept, b.lost[maxLost/2:]...)
}

// expireRates removes expired rates, turns the shares of closed streams into lost rates, and
// transfers lost rates to the next streams of their peers. It returns the number of shares that it
// marked ended.
func (d *Divider) expireRates(b *bucket) (n int) {
	for i := range b.shares {
		switch s := &b.shares[i]; {
		case d.closedShares > 0 && s.stream.closed:
			d.addLostShare(b, s)
			s.ended = true
			n++
		case s.maxRate > 0 && !s.has(expiryUnknown) && s.expiry <= d.now:
			s.maxRate = 0
			s.setUnassigned(d.now + assignTimeout)
		}
	}
	if b.lost == nil {
		return n
	}
	kept := b.lost[:0]
	for _, l := range b.lost {
		if l.expiry > d.now && !d.inheritLost(b, l) {
			kept = append(kept, l)
		} else {
			d.addBytes(l.payer(b), -lostBytes)
		}
	}
	clear(b.lost[len(kept):])
	b.lost = kept
	if len(kept) == 0 {
		b.lost = nil
	} else if cap(kept) > 2*len(kept)+8 {
		b.lost = slices.Clone(kept)
	}
	return n
}

// inheritLost transfers a lost rate to the only stream of its peer, and reports whether it did. The
// rate counts as in effect until the stream gets another assignment. If the lost stream was still
// open when this one began, both are of one Envoy only if the Envoy knew the bucket before.
func (d *Divider) inheritLost(b *bucket, l lost) bool {
	p := l.peer
	if p == nil || p.open != 1 || d.now < p.exclusiveFrom {
		return false
	}
	i, found := b.findShare(p.newest)
	if !found || b.shares[i].ended {
		return false
	}
	s := &b.shares[i]
	if l.succeeded && (d.now < p.sharedUntil || !s.has(reconnected)) {
		return false
	}
	if !s.has(everConfirmed) {
		s.maxRate = max(s.maxRate, Rate(min(l.rate, unlimited)))
		s.expiry = max(s.expiry, l.expiry)
		d.counts.Inherited++
	}
	return true
}

// learnPeriod is how long Envoys take to reconnect after a restart of the service. They do so at
// their next report, which is due every 5 s.
const learnPeriod = 6 * time.Second

// addUnknown adds one lost rate of unknown streams: the sum of what other dividers may have
// assigned.
func (d *Divider) addUnknown(b *bucket) {
	if b.limit == nil || b.limit.Strategy != Divide || b.isLearning() {
		return
	}
	if until := max(d.learnUntil, d.handoverExpiry(b)); until > d.now {
		d.addLost(b, lost{expiry: until, rate: b.limit.perFill(), unknown: true})
	}
}

// handoverExpiry returns when all assignments of the bucket's previous divider have expired, 0 if
// there was none.
func (d *Divider) handoverExpiry(b *bucket) Time {
	if b.limit == nil || b.limit.PredecessorUntil == 0 {
		return 0
	}
	return b.limit.PredecessorUntil + maxLife
}

func (b *bucket) isLearning() bool {
	return slices.ContainsFunc(b.lost, func(l lost) bool { return l.unknown })
}

// adoptReportedRate moves a part of the unknown lost rate to the new share: the rate at which the
// Envoy admitted requests. A predecessor must have assigned at least that rate, if the report is
// true. A lie should leave something to Envoys that report later, so no share gets more than half of
// the limit. If there are shares of other clients, all shares of one client together get no more.
func (s *share) adoptReportedRate(b *bucket, until Time, r Report) {
	i := slices.IndexFunc(b.lost, func(l lost) bool { return l.unknown })
	if i < 0 {
		return
	}
	most := b.limit.perFill() / 2
	own := int64(0) // rate of the client's other shares
	others := false // whether other clients have shares
	for j := range b.shares {
		if other := &b.shares[j]; other.stream.client == s.stream.client {
			own += int64(other.maxRate)
		} else {
			others = true
		}
	}
	if others {
		most = max(most-own, 0)
	}
	rate := min(b.lost[i].rate, r.admittedRate(), int64(MaxRate), most)
	b.lost[i].rate -= rate
	s.maxRate = Rate(rate)
	s.expiry = until
}

// admittedRate returns a lower bound of the rate at which the Envoy admitted requests.
func (r *Report) admittedRate() int64 {
	return int64(float64(min(r.Allowed, maxCount)) * float64(Fill) / float64(r.envoyInterval()))
}
