package quota

// divide works out what each holder of a bucket is to be told.
func (d *Divider) divide(b *bucket) {
	d.expire(b)
	for i := 0; i < len(b.shares); {
		s := &b.shares[i]
		if silent := s.high == 0 && s.state&queued == 0 && d.now-s.reported > d.o.TTL; silent || d.abandoned(b, s) {
			d.removeShare(b, i)
			continue
		}
		i++
	}
	if len(b.shares) == 0 && len(b.lost) == 0 {
		delete(d.buckets, b.key)
		return
	}
	if b.limit != nil && len(b.shares) > 0 {
		d.apportion(b)
	}
	d.plan(b)
}

// abandoned reports whether a share is at its end, and queues Abandon if it is to be.
func (d *Divider) abandoned(b *bucket, s *share) bool {
	switch {
	case s.state&abandoning != 0 && s.state&(queued|outstanding) == 0:
		return s.state&answer == 0 // else it was reported anew
	case b.limit == nil || int(s.idle) >= d.o.IdleReports:
		if s.state&abandoning == 0 {
			s.state |= abandoning
			s.state &^= answer
			d.queue(b, s, 0)
		}
	}
	return false
}

// apportion gives each holder the same, lower rates first.
func (d *Divider) apportion(b *bucket) {
	free := b.limit.rate() - b.inForce()
	even := Rate(min(max(b.limit.rate()-b.lostRate(), 0)/int64(len(b.shares)), int64(MaxRate)))
	for i := range b.shares {
		s := &b.shares[i]
		if s.state&abandoning != 0 {
			continue
		}
		rate, held := even, s.reserved()
		switch b.limit.Verdict {
		case AllowAll:
			rate = unlimited
		case DenyAll:
			rate = 0
		default:
			rate = min(rate, Rate(min(int64(held)+max(free, 0), int64(MaxRate))))
		}
		if held == s.told && rate == held && s.state&(answer|queued) == 0 {
			continue
		}
		if s.state&answer == 0 && rate < even && rate == s.told {
			continue
		}
		s.state &^= answer
		d.queue(b, s, rate)
		free -= int64(s.reserved()) - int64(held)
	}
}

// queue puts what a holder is to be told into its outbox.
func (d *Divider) queue(b *bucket, s *share, rate Rate) {
	s.next = rate
	if s.state&queued == 0 {
		s.state |= queued
		s.stream.outbox = append(s.stream.outbox, b)
	}
	d.wake(s.stream)
}

// inForce returns the most that may be in force.
func (b *bucket) inForce() int64 {
	sum := b.lostRate()
	for i := range b.shares {
		sum += int64(b.shares[i].reserved())
	}
	return sum
}

func (b *bucket) lostRate() int64 {
	sum := int64(0)
	for _, l := range b.lost {
		sum += int64(l.rate)
	}
	return sum
}

// expire ends what has outlived its time.
func (d *Divider) expire(b *bucket) {
	kept := b.lost[:0]
	for _, l := range b.lost {
		if l.until > d.now {
			kept = append(kept, l)
		}
	}
	b.lost = kept
	for i := range b.shares {
		if s := &b.shares[i]; s.state&outstanding == 0 && s.high > 0 && s.until <= d.now {
			s.high = 0
			s.state &^= assigned
		}
	}
}

// plan schedules the next division that no event leads to.
func (d *Divider) plan(b *bucket) {
	next := d.now + 2*d.o.TTL
	for _, l := range b.lost {
		next = min(next, l.until)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.state&outstanding == 0 && s.high > 0 {
			next = min(next, s.until)
		} else if s.high == 0 {
			next = min(next, s.reported+d.o.TTL+1)
		}
	}
	d.due.add(b, max(next, d.now+1))
}
