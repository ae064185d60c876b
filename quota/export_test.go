package quota

// InForce returns what the ledger has of a bucket, also of one without a limit.
func (d *Divider) InForce(key Bucket) (rate int64, known bool) {
	b := d.buckets[key]
	if b == nil {
		return 0, false
	}
	return b.inForce(), true
}

// ForgetLost is a mistake: it takes what ended streams were told as ended.
func (d *Divider) ForgetLost() {
	for _, b := range d.buckets {
		b.lost = nil
	}
}

// ForgetUnconfirmed is a mistake: it takes what was taken as being in force alone.
func (d *Divider) ForgetUnconfirmed() {
	for _, b := range d.buckets {
		for i := range b.shares {
			b.shares[i].high = b.shares[i].told
		}
	}
}

// Broken returns what is wrong with the structure of a divider, "" if nothing is.
func (d *Divider) Broken() string {
	shares, ids := 0, 0
	for _, b := range d.buckets {
		ids += len(b.id)
		shares += len(b.shares)
		for i := range b.shares {
			s := &b.shares[i]
			switch {
			case s.stream.closed:
				continue
			case d.streams[s.stream.holder] != s.stream:
				return "a share of a stream that has ended"
			case s.stream.shares[s.at] != b:
				return "a share that its stream does not know"
			case i > 0 && b.shares[i-1].stream.holder >= s.stream.holder:
				return "shares out of order"
			}
		}
		if b.removed {
			return "a removed bucket"
		}
		if b.place == 0 && !b.dirty && d.nextChange(b) < never && len(d.closing) == 0 {
			return "a bucket that is never divided again"
		}
		if b.place > 0 && d.due[b.place-1] != b {
			return "a bucket at another place of the schedule"
		}
	}
	if shares != d.shares || ids != d.idBytes {
		return "a wrong number of shares, or bytes of ids"
	}
	for _, s := range d.streams {
		if len(s.outbox) > 2*len(s.shares)+mostSlack || len(s.sent)+len(s.batches) > 8*len(s.shares)+mostSlack+1 {
			return "more entries than there are buckets"
		}
	}
	return ""
}
