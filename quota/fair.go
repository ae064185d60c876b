package quota

// want is the rate that a share or a client is to get in a division, in tokens per Fill.
type want struct {
	want          float64
	target, most  int64
	claim         Rate // of a holder that clings: what it is taken to act on
	live, settled bool
}

// part is a client's part of the bucket that is divided.
type part struct {
	division uint64 // number of the division that set the other fields
	live     int    // number of live shares
	shares   int    // number of shares
	first    int    // the place of the first of them in Divider.members
	group    int    // the place in Divider.groups
	lost     int64  // lost rate that no holder claims
}

// partOf returns what a client has in this division.
func (d *Divider) partOf(c *client) *part {
	if c.division != d.counts.Divisions {
		c.part = part{division: d.counts.Divisions}
	}
	return &c.part
}

// isLive reports whether a share is to get something.
func (s *share) isLive() bool { return !s.is(abandoning) || s.is(asked) }

// targets works out what each share is to have once all others have what they are to have. It reports
// whether a holder lacks something now.
func (d *Divider) targets(b *bucket) (starved bool) {
	d.wants = d.wants[:0]
	denied, live, clients := 0, 0, 0 // live shares that were denied something, all live shares, and their clients
	held := int64(0)
	for i := range b.shares {
		s := &b.shares[i]
		held += int64(s.high)
		isLive := s.isLive()
		d.wants = append(d.wants, want{live: isLive, settled: !isLive, most: int64(MaxRate)})
		p := d.partOf(s.stream.client)
		if p.shares++; !isLive {
			continue
		}
		live++
		if p.live++; p.live == 1 {
			clients++
		}
		if s.is(hungry) {
			denied++
		}
	}
	all := max(b.limit.rate()-d.claims(b), 0)
	for i := range b.shares {
		s, w := &b.shares[i], &d.wants[i]
		if w.live {
			n := float64(clients * s.stream.client.live)
			w.want = float64(all) / (2 * n)
			if s.is(measured) {
				w.want = max(s.wanted(), float64(all)/(64*n))
			}
			w.want = max(w.want, float64(w.claim))
		}
		d.ask(b, s, denied)
	}
	if b.lost == nil && clients == live {
		fill(d.wants, all, live)
	} else {
		d.fillClients(b, all, clients)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.state&(hungry|assigned) != assigned && !s.is(abandoning) && d.wants[i].target > int64(s.told) {
			starved = true
		}
	}
	return starved || held > b.limit.rate()-b.lostRate()
}

// ask has a holder whose demand fell abandon the bucket while other holders are denied something.
func (d *Divider) ask(b *bucket, s *share, denied int) {
	if s.is(hungry) && s.isLive() {
		denied--
	}
	lacks := s.is(hungry) && s.wanted() >= float64(s.high) // so nothing comes of asking but a full token bucket
	if denied > 0 && !lacks && s.high > 0 && s.state&(fell|arrived|outstanding|queued|abandoning) == fell|arrived {
		s.state |= asked
		s.state &^= fell
		d.counts.Asked++
		d.abandon(b, s)
	}
}

// claims matches lost rates with holders. A holder that came back with another stream still acts on a lost rate: it claims the
// rate that it admits, at most that of one lost share. The remaining lost rates of a client count as its own, or a client would
// get another share each time that it came back. claims returns the remaining rates of clients that have no live share.
func (d *Divider) claims(b *bucket) (unclaimed int64) {
	if b.lost == nil {
		return 0
	}
	largest := int64(0)
	for i := range b.lost {
		l := &b.lost[i]
		if !l.unknown {
			largest = max(largest, l.rate)
		}
		if l.client != nil && d.partOf(l.client).live > 0 {
			l.client.lost += l.rate
		} else {
			unclaimed += l.rate
		}
	}
	for i := range b.shares {
		s, w := &b.shares[i], &d.wants[i]
		if !w.live || !b.clings(s) {
			continue
		}
		w.claim = Rate(min(int64(s.next), largest))
		p, claim := &s.stream.client.part, max(int64(w.claim)-int64(s.high), 0)
		own := min(claim, p.lost)
		p.lost -= own
		unclaimed -= min(claim-own, unclaimed)
	}
	return unclaimed
}

// fillClients sets targets: first those of clients, then in each of them those of its shares.
func (d *Divider) fillClients(b *bucket, all int64, clients int) {
	d.groups, d.parts, d.members = d.groups[:0], d.parts[:0], append(d.members[:0], d.wants...)
	for i := range b.shares {
		p := &b.shares[i].stream.client.part
		if p.shares > 0 && (len(d.parts) <= p.group || d.parts[p.group] != p) {
			p.group = len(d.groups)
			d.parts = append(d.parts, p)
			d.groups = append(d.groups, want{want: float64(p.lost), most: p.lost, live: p.live > 0, settled: p.live == 0})
		}
		d.groups[p.group].want += d.wants[i].want
		d.groups[p.group].most += d.wants[i].most
	}
	fill(d.groups, all, clients)
	first := 0
	for _, p := range d.parts {
		p.first = first
		first += p.shares
		p.shares = 0
	}
	for i := range b.shares {
		p := &b.shares[i].stream.client.part
		d.members[p.first+p.shares] = d.wants[i]
		p.shares++
	}
	for i, p := range d.parts {
		fill(d.members[p.first:p.first+p.shares], max(d.groups[i].target-p.lost, 0), p.live)
		p.shares = 0
	}
	for i := range b.shares {
		p := &b.shares[i].stream.client.part
		d.wants[i] = d.members[p.first+p.shares]
		p.shares++
	}
}

// mostLevels bounds the passes of fill. Only demands that were chosen for it need more passes. The last ones all get the same then,
// even those that want less.
const mostLevels = 32

// fill sets targets: each gets what it wants, but none that wants more gets more than another that
// wants as much (max-min fairness). What is left goes to all, half of it evenly, so that new requests
// find something everywhere, and half by their demand.
func fill(wants []want, all int64, live int) {
	left, open := float64(all), live
	for pass, settled := 0, true; settled && open > 0 && pass < mostLevels; pass++ {
		settled = false
		level := left / float64(open)
		for i := range wants {
			if w := &wants[i]; !w.settled && w.want <= level {
				w.settled, settled = true, true
				w.target = int64(w.want)
				left -= w.want
				open--
			}
		}
	}
	weights := 0.0
	for i := range wants {
		weights += wants[i].want
	}
	sum := int64(0)
	for i := range wants {
		w := &wants[i]
		switch {
		case !w.settled:
			w.target = int64(left / float64(open))
		case open == 0 && w.live:
			w.target += int64(left/2/float64(live) + left/2*w.want/max(weights, 1))
		}
		w.target = min(w.target, w.most)
		sum += w.target
	}
	for i := 0; i < len(wants) && sum < all; i++ { // what rounding left
		if w := &wants[i]; w.live && w.target < w.most {
			w.target++
			sum++
		}
	}
}
