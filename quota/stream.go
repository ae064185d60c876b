package quota

// stream is a holder.
type stream struct {
	holder Holder
	peer   uint64
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
		s = &stream{holder: h}
		d.streams[h] = s
	}
	return s
}

// stray tells the holder to abandon a bucket of which nothing is kept.
func (s *stream) stray(r Report) {
	if len(s.strays) < mostStrays {
		s.strays = append(s.strays, Action{Bucket: r.Bucket, ID: string(r.ID), Kind: Abandon})
	}
}

func (d *Divider) noRoom(s *stream, r Report) Outcome {
	s.stray(r)
	d.wake(s)
	d.counts.NoRoom++
	return NoRoom
}

// confirm returns the buckets of what was taken up to seq.
func (s *stream) confirm(seq uint64) []*bucket {
	n, end := 0, 0
	for n < len(s.batches) && s.batches[n].seq <= seq {
		end = s.batches[n].end
		n++
	}
	s.batches = append(s.batches[:0], s.batches[n:]...)
	for i := range s.batches {
		s.batches[i].end -= end
	}
	done := s.sent[:end:end]
	s.sent = s.sent[end:]
	if len(s.sent) == 0 {
		s.sent = nil
	}
	return done
}
