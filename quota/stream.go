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
	batches []batch
	ready   bool // in Divider.ready
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
	if r.Elapsed > 0 && r.Allowed+r.Denied == 0 && len(s.strays) < mostStrays {
		s.strays = append(s.strays, Action{Bucket: r.Bucket, ID: string(r.ID), Kind: Abandon})
		d.wake(s)
	}
}

func (d *Divider) noRoom(s *stream, r Report) Outcome {
	d.counts.NoRoom++
	d.stray(s, r)
	return NoRoom
}

// full reports whether a stream can have no more buckets.
func (d *Divider) full(s *stream) bool {
	return d.shares >= d.o.MaxBuckets || len(s.shares) >= d.o.MaxStreamBuckets
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
