package division

// stream is an open stream, or a closed one whose shares are not removed yet.
type stream struct {
	id        StreamID
	peer      *peer
	client    *client
	seq       uint64    // number of the last batch
	shares    []*bucket // buckets in which it has a share
	outbox    []*bucket // buckets with a queued action
	untracked []Action  // Abandon actions for buckets without a share
	sent      []*bucket // buckets of unconfirmed batches
	// batches are the unconfirmed batches, oldest first.
	batches   []batch
	ready     bool // whether it is in Divider.readyStreams
	closed    bool // its shares are removed by the next divisions of their buckets
	closedAt  Time
	succeeded bool // its peer had a newer stream when it was closed
}

// batch is the batch of actions with number seq: those of sent[:end] that are not part of earlier
// batches.
type batch struct {
	seq uint64
	end int
}

// maxUntracked bounds the actions for buckets without a share. A bucket beyond the bound can be
// abandoned at its next report.
const maxUntracked = 1024

// findStream returns the stream with the given ID, a new one if there is none.
func (d *Divider) findStream(id StreamID) *stream {
	s := d.streams[id]
	if s == nil {
		s = &stream{id: id, client: &client{streams: 1}}
		d.streams[id] = s
	}
	return s
}

// abandonUntracked queues Abandon for a bucket without a share if it had no requests. A bucket with
// requests gets no action, because the Envoy would report it again at once.
func (d *Divider) abandonUntracked(s *stream, r Report) {
	n := untrackedBytes + len(r.ID)
	if r.Elapsed > 0 && r.Allowed+r.Denied == 0 && len(s.untracked) < maxUntracked && d.mayAllocate(s.client, n) {
		d.addBytes(s.client, n)
		s.untracked = append(s.untracked, Action{Bucket: r.Bucket, ID: string(r.ID), Kind: Abandon})
		d.markReady(s)
	}
}

func (d *Divider) rejectBucket(s *stream, r Report) Outcome {
	d.counts.TooManyBuckets++
	d.abandonUntracked(s, r)
	return TooManyBuckets
}

// takeUntracked appends up to limit actions for buckets without a share.
func (d *Divider) takeUntracked(s *stream, dst []Action, limit int) []Action {
	n := min(limit, len(s.untracked))
	for i := range s.untracked[:n] {
		d.addBytes(s.client, -untrackedBytes-len(s.untracked[i].ID))
	}
	dst = append(dst, s.untracked[:n]...)
	if s.untracked = s.untracked[n:]; len(s.untracked) == 0 {
		s.untracked = nil
	}
	return dst
}

// isFull reports whether a stream may not have another bucket of n bytes.
func (d *Divider) isFull(s *stream, n int) bool {
	return len(s.shares) >= d.maxStreamBuckets || !d.mayAllocate(s.client, n)
}

// queueAssignment queues the assignment of a rate in the stream's outbox.
func (d *Divider) queueAssignment(b *bucket, s *share, rate Rate) {
	s.next = rate
	d.queue(b, s)
}

// queueAbandon queues Abandon for a share. A probed share keeps its rate reserved.
func (d *Divider) queueAbandon(b *bucket, s *share, why abandonment) {
	s.abandonment = why
	s.reserved = s.current
	s.flags &^= replyDue
	d.queue(b, s)
}

func (d *Divider) queue(b *bucket, s *share) {
	if s.outbox == absent {
		s.stream.outbox = append(s.stream.outbox, b)
	}
	s.outbox = queued
	d.markReady(s.stream)
}

// withdraw withdraws the queued action of a share, if there is one.
func (s *share) withdraw() {
	if s.outbox == queued {
		s.outbox = withdrawn
	}
}

// removeFromOutbox records that the share left the outbox. It reports whether an action was queued.
func (s *share) removeFromOutbox() bool {
	wasQueued := s.outbox == queued
	s.outbox = absent
	return wasQueued
}

// popConfirmed removes the batches up to seq and returns how many entries of sent belong to them.
func (s *stream) popConfirmed(seq uint64) int {
	n := 0
	end := 0
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

// dropFirst removes the first n entries. It releases the memory of a long list that becomes empty.
func dropFirst(list []*bucket, n int) []*bucket {
	if n == len(list) && cap(list) > 1024 {
		return nil
	}
	left := copy(list, list[n:])
	clear(list[left:])
	return list[:left]
}

// maxStaleEntries is the number of stale entries that a stream's lists may have in addition to
// those of its shares.
const maxStaleEntries = 64

// compactOutbox removes duplicates and entries without an action once the outbox has more than two
// for each share.
func (s *stream) compactOutbox() {
	if len(s.outbox) <= 2*len(s.shares)+maxStaleEntries {
		return
	}
	kept := s.outbox[:0]
	for _, b := range s.outbox {
		if i, found := b.findShare(s.id); found && b.shares[i].removeFromOutbox() {
			kept = append(kept, b)
		}
	}
	clear(s.outbox[len(kept):])
	s.outbox = kept
	for _, b := range kept {
		if i, found := b.findShare(s.id); found {
			b.shares[i].outbox = queued
		}
	}
}

// compactSent removes entries that await no confirmation once they are most of the list. It bounds
// the memory of a client that never confirms.
func (s *stream) compactSent() {
	if len(s.sent)+len(s.batches) <= 8*len(s.shares)+maxStaleEntries {
		return
	}
	kept := s.sent[:0]
	batches := s.batches[:0]
	begin := 0
	for _, a := range s.batches {
		before := len(kept)
		for _, b := range s.sent[begin:a.end] {
			if i, found := b.findShare(s.id); found && b.shares[i].awaitsSeq(uint32(a.seq)) {
				kept = append(kept, b)
			}
		}
		begin = a.end
		if len(kept) > before {
			batches = append(batches, batch{a.seq, len(kept)})
		}
	}
	clear(s.sent[len(kept):])
	s.sent = kept
	s.batches = batches
}

// awaitsSeq reports whether a share awaits the confirmation of batch seq.
func (s *share) awaitsSeq(seq uint32) bool {
	return s.has(expiryUnknown) && s.renewalSeq == seq || s.has(rateUnconfirmed) && s.rateSeq == seq
}
