package division

// AssignedRate returns the assigned rate of a bucket, including one without a limit.
func (d *Divider) AssignedRate(key Bucket) (rate int64, known bool) {
	b := d.buckets[key]
	if b == nil {
		return 0, false
	}
	return b.assignedRate(), true
}

// TakenRate is [Divider.AssignedRate] without queued assignments.
func (d *Divider) TakenRate(key Bucket) int64 {
	b := d.buckets[key]
	if b == nil {
		return 0
	}
	sum := b.lostRate()
	for i := range b.shares {
		if s := &b.shares[i]; s.abandonment == probed {
			sum += int64(s.reservedRate())
		} else {
			sum += int64(s.maxRate)
		}
	}
	return sum
}

// CheckInvariants returns a description of a violated invariant of the divider's data structures,
// "" if there is none.
func (d *Divider) CheckInvariants() string {
	shares, closed, bytes := 0, 0, map[*client]int{}
	for _, b := range d.buckets {
		bytes[b.owner] += bucketBytes + len(b.id)
		for i := range b.lost {
			bytes[b.lost[i].payer(b)] += lostBytes
		}
		for i := range b.shares {
			bytes[b.shares[i].stream.client] += shareBytes
		}
		shares += len(b.shares)
		for i := range b.shares {
			s := &b.shares[i]
			switch {
			case s.stream.closed:
				closed++
				continue
			case d.streams[s.stream.id] != s.stream:
				return "a share of a closed stream"
			case s.stream.shares[s.index] != b:
				return "a share that is missing in its stream"
			case i > 0 && b.shares[i-1].stream.id >= s.stream.id:
				return "shares out of order"
			}
		}
		if b.removed {
			return "a removed bucket"
		}
		if b.heapIndex == 0 && !b.dirty && d.nextChange(b) < never && len(d.closing) == 0 {
			return "a bucket that is never divided again"
		}
		if b.heapIndex > 0 && d.due.Heap[b.heapIndex-1] != b {
			return "a bucket with a wrong index in the schedule"
		}
	}
	sum := 0
	for _, s := range d.streams {
		for i := range s.untracked {
			bytes[s.client] += untrackedBytes + len(s.untracked[i].ID)
		}
	}
	for c, n := range bytes {
		if sum += n; n != c.bytes || c.id != 0 && d.clients[c.id] != c {
			return "a client with a wrong number of bytes"
		}
	}
	if shares != d.shares || closed != d.closedShares || sum != d.bytes {
		return "a wrong number of shares or bytes"
	}
	for _, s := range d.streams {
		if len(s.outbox) > 2*len(s.shares)+maxStaleEntries || len(s.sent)+len(s.batches) > 8*len(s.shares)+maxStaleEntries+1 {
			return "too many stale entries"
		}
	}
	return ""
}
