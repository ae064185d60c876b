package division

// demand is the demand of a share or a client in a division and its allocation, in tokens per Fill.
type demand struct {
	rate                float64
	allocation, maxRate int64
	claim               Rate // lost rate that the Envoy is assumed to apply, if mayActOnLost
	live, satisfied     bool
}

// totals are the sums over a client's shares in a division.
type totals struct {
	division uint64 // number of the division that set the other fields
	live     int    // number of live shares
	shares   int    // number of shares
	first    int    // index of the first one in Divider.memberDemands
	group    int    // index in Divider.clientDemands
	lost     int64  // lost rates that no share claims
}

// totalsOf returns the totals of a client in this division.
func (d *Divider) totalsOf(c *client) *totals {
	if c.division != d.counts.Divisions {
		c.totals = totals{division: d.counts.Divisions}
	}
	return &c.totals
}

// isLive reports whether a share takes part in the division.
func (s *share) isLive() bool { return s.abandonment != retired }

// allocate computes the allocation of each share: the rate that it gets once all other shares have
// been lowered to theirs. starved is true if a share needs a higher rate, or if the rates exceed
// the limit.
func (d *Divider) allocate(b *bucket) (starved bool) {
	d.demands = d.demands[:0]
	deniedShares := 0
	live := 0
	clients := 0 // live shares with denied requests, all live shares, and their clients
	inEffect := int64(0)
	for i := range b.shares {
		s := &b.shares[i]
		inEffect += int64(s.maxRate)
		isLive := s.isLive()
		d.demands = append(d.demands, demand{live: isLive, satisfied: !isLive, maxRate: int64(MaxRate)})
		t := d.totalsOf(s.stream.client)
		if t.shares++; !isLive {
			continue
		}
		live++
		if t.live++; t.live == 1 {
			clients++
		}
		if s.has(denied) {
			deniedShares++
		}
	}
	capacity := max(b.limit.perFill()-d.claimLostRates(b), 0)
	for i := range b.shares {
		s := &b.shares[i]
		w := &d.demands[i]
		if w.live {
			n := float64(clients * s.stream.client.live)
			w.rate = float64(capacity) / (2 * n)
			if s.has(measured) {
				w.rate = max(s.demandPerFill(), float64(capacity)/(64*n))
			}
			w.rate = max(w.rate, float64(w.claim))
		}
		d.probe(b, s, deniedShares)
	}
	if b.lost == nil && clients == live {
		fillMaxMin(d.demands, capacity, live)
	} else {
		d.allocateByClient(b, capacity, clients)
	}
	for i := range b.shares {
		s := &b.shares[i]
		mayNeedMore := s.has(denied) || s.assignment != assigned
		if mayNeedMore && s.abandonment == kept && d.demands[i].allocation > int64(s.current) {
			starved = true
		}
	}
	return starved || inEffect > b.limit.perFill()-b.lostRate()
}

// probe makes an Envoy whose demand fell abandon the bucket while requests are denied at other
// Envoys.
func (d *Divider) probe(b *bucket, s *share, deniedShares int) {
	if s.has(denied) && s.isLive() {
		deniedShares--
	}
	starved := s.has(denied) && s.demandPerFill() >= float64(s.maxRate) // a probe would only refill its token bucket
	isSettled := s.has(everConfirmed) && !s.has(expiryUnknown) && s.outbox != queued && s.abandonment == kept
	if deniedShares > 0 && !starved && s.maxRate > 0 && s.has(demandFell) && isSettled {
		s.flags &^= demandFell
		d.counts.Probed++
		d.queueAbandon(b, s, probed)
	}
}

// claimLostRates matches lost rates with shares. An Envoy that reconnected still applies the lost
// rate of its earlier stream. Its new share claims the rate at which the Envoy admitted requests,
// at most the largest lost rate. The unclaimed lost rates of a client count in its allocation;
// otherwise a client would get another share each time it reconnects. claimLostRates returns the
// unclaimed rates of clients without a live share.
func (d *Divider) claimLostRates(b *bucket) (unclaimed int64) {
	if b.lost == nil {
		return 0
	}
	largest := int64(0)
	for i := range b.lost {
		l := &b.lost[i]
		if !l.unknown {
			largest = max(largest, l.rate)
		}
		if l.client != nil && d.totalsOf(l.client).live > 0 {
			l.client.lost += l.rate
		} else {
			unclaimed += l.rate
		}
	}
	for i := range b.shares {
		s := &b.shares[i]
		w := &d.demands[i]
		if s.abandonment != kept || !b.mayActOnLost(s) {
			continue
		}
		w.claim = Rate(min(int64(s.admitted), largest))
		t := &s.stream.client.totals
		claim := max(int64(w.claim)-int64(s.maxRate), 0)
		own := min(claim, t.lost)
		t.lost -= own
		unclaimed -= min(claim-own, unclaimed)
	}
	return unclaimed
}

// allocateByClient divides capacity among the clients, and the allocation of each client among its
// shares.
func (d *Divider) allocateByClient(b *bucket, capacity int64, clients int) {
	d.clientDemands = d.clientDemands[:0]
	d.clientTotals = d.clientTotals[:0]
	d.memberDemands = append(d.memberDemands[:0], d.demands...)
	for i := range b.shares {
		t := &b.shares[i].stream.client.totals
		if t.shares > 0 && (len(d.clientTotals) <= t.group || d.clientTotals[t.group] != t) {
			t.group = len(d.clientDemands)
			d.clientTotals = append(d.clientTotals, t)
			d.clientDemands = append(d.clientDemands, demand{maxRate: t.lost, live: t.live > 0, satisfied: t.live == 0})
		}
		d.clientDemands[t.group].rate += d.demands[i].rate
		d.clientDemands[t.group].maxRate += d.demands[i].maxRate
	}
	fillMaxMin(d.clientDemands, capacity, clients)
	first := 0
	for _, t := range d.clientTotals {
		t.first = first
		first += t.shares
		t.shares = 0
	}
	for i := range b.shares {
		t := &b.shares[i].stream.client.totals
		d.memberDemands[t.first+t.shares] = d.demands[i]
		t.shares++
	}
	for i, t := range d.clientTotals {
		fillMaxMin(d.memberDemands[t.first:t.first+t.shares], max(d.clientDemands[i].allocation-t.lost, 0), t.live)
		t.shares = 0
	}
	for i := range b.shares {
		t := &b.shares[i].stream.client.totals
		d.demands[i] = d.memberDemands[t.first+t.shares]
		t.shares++
	}
}

// maxPasses bounds the passes of fillMaxMin. Only demands chosen by an attacker need more. After
// the last pass all remaining demands get the same level, even those below it.
const maxPasses = 32

// fillMaxMin divides capacity by max-min fairness: demands up to a common level are satisfied, and
// all others get that level. Capacity that remains when all are satisfied is spread over the live
// demands: half of it evenly, so that new requests find tokens at every Envoy, and half in
// proportion to demand.
func fillMaxMin(demands []demand, capacity int64, live int) {
	left := float64(capacity)
	unsatisfied := live
	for pass, changed := 0, true; changed && unsatisfied > 0 && pass < maxPasses; pass++ {
		changed = false
		level := left / float64(unsatisfied)
		for i := range demands {
			if w := &demands[i]; !w.satisfied && w.rate <= level {
				w.satisfied = true
				changed = true
				w.allocation = int64(w.rate)
				left -= w.rate
				unsatisfied--
			}
		}
	}
	weights := 0.0
	for i := range demands {
		weights += demands[i].rate
	}
	sum := int64(0)
	for i := range demands {
		w := &demands[i]
		switch {
		case !w.satisfied:
			w.allocation = int64(left / float64(unsatisfied))
		case unsatisfied == 0 && w.live:
			w.allocation += int64(left/2/float64(live) + left/2*w.rate/max(weights, 1))
		}
		w.allocation = min(w.allocation, w.maxRate)
		sum += w.allocation
	}
	for i := 0; i < len(demands) && sum < capacity; i++ { // distribute the remainder of the rounding
		if w := &demands[i]; w.live && w.allocation < w.maxRate {
			w.allocation++
			sum++
		}
	}
}
