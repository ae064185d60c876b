package quota

// stream is a holder.
type stream struct {
	holder Holder
	peer   *peer
	client *client
	seq    uint64    // of what was taken last
	shares []*bucket // the buckets in which it has a share
	outbox []*bucket // in which something is queued for it
	strays []Action  // about buckets of which nothing is kept
	sent   []*bucket // what was taken and is unconfirmed, and which batch ended where
	// batches are those of sent, oldest first.
	batches   []batch
	ready     bool // in Divider.ready
	closed    bool // its shares are removed by the next divisions of their buckets
	closedAt  Time
	succeeded bool // when it was closed its peer had a newer one
}

type batch struct {
	seq uint64
	end int // in sent
}

// mostStrays bounds the actions about buckets of which nothing is kept. What is beyond it is reported
// again.
const mostStrays = 1024

func (d *Divider) stream(h Holder) *stream {
	s := d.streams[h]
	if s == nil {
		s = &stream{holder: h, client: &client{streams: 1}}
		d.streams[h] = s
	}
	return s
}

// stray leaves a bucket of which nothing is kept as it is while it has requests: its next request would
// report it anew. One without is abandoned, so that the holder forgets it.
func (d *Divider) stray(s *stream, r Report) {
	n := strayBytes + len(r.ID)
	if r.Elapsed > 0 && r.Allowed+r.Denied == 0 && len(s.strays) < mostStrays && d.hasRoom(s.client, n) {
		d.charge(s.client, n)
		s.strays = append(s.strays, Action{Bucket: r.Bucket, ID: string(r.ID), Kind: Abandon})
		d.wake(s)
	}
}

func (d *Divider) noRoom(s *stream, r Report) Outcome {
	d.counts.NoRoom++
	d.stray(s, r)
	return NoRoom
}

// takeStrays appends at most most strays.
func (d *Divider) takeStrays(s *stream, to []Action, most int) []Action {
	n := min(most, len(s.strays))
	for i := range s.strays[:n] {
		d.charge(s.client, -strayBytes-len(s.strays[i].ID))
	}
	to = append(to, s.strays[:n]...)
	if s.strays = s.strays[n:]; len(s.strays) == 0 {
		s.strays = nil
	}
	return to
}

// isFull reports whether a stream can have no other bucket, which takes n bytes.
func (d *Divider) isFull(s *stream, n int) bool {
	return len(s.shares) >= d.o.MaxStreamBuckets || !d.hasRoom(s.client, n)
}

// queue puts what a holder is to be told into its outbox.
func (d *Divider) queue(b *bucket, s *share, rate Rate) {
	s.next = rate
	s.state |= queued
	if !s.is(listed) {
		s.state |= listed
		s.stream.outbox = append(s.stream.outbox, b)
	}
	d.wake(s.stream)
}

// abandon has a holder forget a bucket. What it has is kept for it if it is only asked whether it has
// requests.
func (d *Divider) abandon(b *bucket, s *share) {
	s.state |= abandoning
	s.state &^= answer
	d.queue(b, s, s.told)
}

// unlist takes a share off the outbox. It reports whether something is to be taken.
func (s *share) unlist() bool {
	s.state &^= listed
	return s.is(queued)
}

// confirmed returns how much of sent belongs to batches up to seq.
func (s *stream) confirmed(seq uint64) int {
	n, end := 0, 0
	for n < len(s.batches) && s.batches[n].seq <= seq {
		end = s.batches[n].end
		n++
	}
	s.batches = append(s.batches[:0], s.batches[n:]...)
	for i := range s.batches {
		s.batches[i].end -= end
	}
	return end
}

// dropFirst takes the first n away. Memory that much was needed of is given back once nothing is.
func dropFirst(list []*bucket, n int) []*bucket {
	if n == len(list) && cap(list) > 1024 {
		return nil
	}
	left := copy(list, list[n:])
	clear(list[left:])
	return list[:left]
}

// mostSlack is how many entries without an effect a stream's lists may have beyond those of its shares.
const mostSlack = 64

// compactOutbox drops entries without an effect, those of removed shares and duplicates, once they are more than half.
func (s *stream) compactOutbox() {
	if len(s.outbox) <= 2*len(s.shares)+mostSlack {
		return
	}
	kept := s.outbox[:0]
	for _, b := range s.outbox {
		if i, found := b.find(s.holder); found && b.shares[i].is(listed) {
			b.shares[i].state &^= listed
			kept = append(kept, b)
		}
	}
	clear(s.outbox[len(kept):])
	s.outbox = kept
	for _, b := range kept {
		if i, found := b.find(s.holder); found {
			b.shares[i].state |= listed
		}
	}
}

// compactSent drops entries that await no confirmation once they are most of the list. A holder may never confirm.
func (s *stream) compactSent() {
	if len(s.sent)+len(s.batches) <= 8*len(s.shares)+mostSlack {
		return
	}
	kept, batches, begin := s.sent[:0], s.batches[:0], 0
	for _, a := range s.batches {
		before := len(kept)
		for _, b := range s.sent[begin:a.end] {
			if i, found := b.find(s.holder); found && b.shares[i].awaits(uint32(a.seq)) {
				kept = append(kept, b)
			}
		}
		begin = a.end
		if len(kept) > before {
			batches = append(batches, batch{a.seq, len(kept)})
		}
	}
	clear(s.sent[len(kept):])
	s.sent, s.batches = kept, batches
}

// awaits reports whether a share awaits the confirmation of a batch.
func (s *share) awaits(seq uint32) bool {
	return s.is(outstanding) && s.renewed == seq || s.is(settling) && s.seq == seq
}
