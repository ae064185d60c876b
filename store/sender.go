package store

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// nextBatch waits for requests and moves the oldest to batch, as many as one run can decide.
func (sh *shard) nextBatch(sender int, batch []*request) ([]*request, *redis.Conn) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sendingSince[sender] = time.Time{}
	for !sh.closed {
		pause, room := sh.roomLocked()
		canSend := room && (len(sh.queue) > 0 || len(sh.bulk) > 0) && !sh.connecting
		if canSend && pause == 0 {
			break
		}
		if !canSend || sh.pacing {
			sh.wake.Wait()
			continue
		}
		sh.pacing = true
		sh.mu.Unlock()
		time.Sleep(pause)
		sh.mu.Lock()
		sh.pacing = false
	}
	if sh.closed {
		return nil, nil
	}
	room := script.MaxRun
	part := script.MaxPart
	if len(sh.bulk) > 0 {
		room -= part
	}
	batch, room = sh.moveRequests(batch, &sh.queue, room)
	since := clock() // parts of a large request wait for each other, not for the store
	if len(batch) > 0 {
		since = batch[0].queuedAt
	}
	if len(sh.bulk) > 0 {
		batch, _ = sh.moveRequests(batch, &sh.bulk, room+part)
	}
	sh.sendingSince[sender] = since
	sh.inFlight++
	sh.lastBatch = clock()
	for _, req := range batch {
		req.sent = true
	}
	if len(sh.queue) > 0 || len(sh.bulk) > 0 {
		sh.wakeSenderLocked()
	}
	return batch, sh.conn
}

// moveRequests moves the oldest requests of a queue to batch: as many as fit into room, and at
// least one. It returns the remaining room.
func (sh *shard) moveRequests(batch []*request, queue *[]*request, room time.Duration) ([]*request, time.Duration) {
	q := *queue
	n := 0
	for n < len(q) && (n == 0 || q[n].cost(sh) <= room) {
		room -= q[n].cost(sh)
		n++
	}
	batch = append(batch, q[:n]...)
	rest := copy(q, q[n:])
	clear(q[rest:])
	*queue = q[:rest]
	return batch, room
}

// cost estimates how long req takes in the store.
func (req *request) cost(sh *shard) time.Duration {
	if sh.backend.server.Nodes != nil || req.isolated { // most have their own run
		return req.call.Cost + script.CostOfRun
	}
	return req.call.Cost
}

// A batch is a sender's requests in flight.
type batch struct {
	options    *Options
	requests   []*request
	runs       []*batchRun   // beyond its length there is memory for reuse
	scriptRuns []*script.Run // the Run of each of runs
	grouped    bool          // runs have all requests
	state      limiter.State // scratch memory
}

// runSender sends batches until the shard is closed.
func (sh *shard) runSender(sender int) {
	f := &batch{options: sh.options}
	for {
		var c *redis.Conn
		f.requests, c = sh.nextBatch(sender, f.requests[:0])
		if len(f.requests) == 0 {
			return
		}
		if err := sh.sendBatch(c, f); err != nil {
			sh.markUnavailable(c, redis.NewError(err))
			f = &batch{options: sh.options} // the connection may still read the old one
		}
		sh.batchDone()
	}
}

// batchDone records that a message is no longer in flight.
func (sh *shard) batchDone() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.inFlight--; sh.inFlight == 0 {
		sh.idle.Broadcast()
	}
}

// waitIdle waits until no message is in flight on a connection that was closed.
func (sh *shard) waitIdle() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for sh.inFlight > 0 {
		sh.idle.Wait()
	}
}

// sendBatch sends a batch and decides its requests by the reply. A panic is returned as an error;
// requests without an answer still wait.
func (sh *shard) sendBatch(c *redis.Conn, f *batch) (err error) {
	err = redis.ErrPanicked
	if !sh.options.guard(func() { err = sh.roundTrip(c, f) }) {
		sh.abandon(f)
	}
	return err
}

// abandon resolves the requests of a batch that panicked. The fallback decides those that were
// removed from the open requests but not decided.
func (sh *shard) abandon(f *batch) {
	if !f.grouped {
		sh.backend.resolve(outcomeUncounted, f.requests...)
		return
	}
	for _, r := range f.runs {
		for i, req := range r.requests {
			switch {
			case req == nil: // resolved
			case i < len(r.wasOpen):
				sh.backend.resolve(outcomeCounted, req)
				if r.wasOpen[i] {
					sh.fallBack([]*request{req})
				}
			default:
				sh.backend.resolve(outcomeUncounted, req)
			}
		}
	}
}

// roundTrip is sendBatch without handling panics.
func (sh *shard) roundTrip(c *redis.Conn, f *batch) (err error) {
	f.groupIntoRuns()
	sent := sh.options.elapsed()
	script.DecideScript.Run(c, f.scriptRuns...)
	trip := sh.options.elapsed() - sent
	charges := 0
	sh.learnTrip(trip)
	if bl := sh.backend.store.blocks; bl != nil {
		bl.learnTrip(trip)
	}
	for _, r := range f.runs {
		where := redirection{}
		elsewhere := false
		if r.Err == nil {
			r.Read()
		} else {
			where, elsewhere = sh.redirected(r.Err)
		}
		switch {
		case r.Err == nil && r.Native:
			r.Reply.Now = sh.time(sh.options.now())
		case r.Err == nil:
			sh.learnOffset(r.Reply.Now, sent, trip)
		case elsewhere:
			redirected := r.requests
			r.requests = nil // another shard may use them
			sh.redirect(redirected, where)
			continue
		default:
			sh.backend.resolve(outcomeUncounted, r.requests...)
			r.requests = r.requests[:0]
			err = cmp.Or(err, r.Err)
			continue
		}
		err = cmp.Or(err, sh.removeFailed(r))
		charges += r.charges
		sh.finish(f, r)
	}
	if charges > 0 {
		sh.options.observe().Batch(trip, charges)
	}
	return err
}

// removeFailed removes the requests that the store has not decided from r. It returns an error if
// the shard becomes unavailable.
func (sh *shard) removeFailed(r *batchRun) (err error) {
	decided := r.requests[:0]
	for i, req := range r.requests {
		r.requests[i] = nil
		if req.call.Err != nil {
			r.charges -= req.call.Size()
			if !sh.options.guard(func() { err = cmp.Or(err, sh.handleError(req)) }) {
				sh.backend.resolve(outcomeUncounted, req)
			}
			continue
		}
		decided = append(decided, req)
		if req.call.LacksExpiry {
			sh.expire(req)
		}
	}
	r.requests = decided
	return err
}

// handleError handles a request that the store has not decided. It returns an error if the shard
// becomes unavailable.
func (sh *shard) handleError(req *request) error {
	if foreign, ok := errors.AsType[*script.ForeignError](req.call.Err); ok {
		sh.handleForeign(req, foreign)
	} else if where, elsewhere := sh.redirected(req.call.Err); elsewhere {
		sh.redirect([]*request{req}, where)
	} else {
		sh.backend.resolve(outcomeUncounted, req)
		return req.call.Err
	}
	return nil
}

// handleForeign handles req after another program wrote the key of one of its counters: the fallback
// decides it.
func (sh *shard) handleForeign(req *request, why *script.ForeignError) {
	sh.mu.Lock()
	wasOpen := req.open
	if wasOpen {
		sh.open.remove(req)
	}
	sh.mu.Unlock()
	sh.options.guard(func() { // else a panic would leave the waiter without a decision
		sh.options.observe().Failed(string(redis.Script))
		sh.backend.store.logForeign(sh.name, why)
	})
	sh.backend.resolveForeign(req)
	switch {
	case !wasOpen:
	case !req.end.fallsBack():
		sh.options.notify(req.waiter, why)
	default:
		sh.fallBack([]*request{req})
	}
}

// finish decides the requests of a run that are still open.
func (sh *shard) finish(f *batch, r *batchRun) {
	for _, req := range r.requests {
		req.repliedAt = sh.counterTime(r.Reply.Now, req.slotByStart)
	}
	sh.mu.Lock()
	for _, req := range r.requests {
		r.wasOpen = append(r.wasOpen, req.open)
		if req.open {
			sh.open.remove(req)
		}
	}
	sh.mu.Unlock()
	admitted := int64(0)
	complete := true
	for i, req := range r.requests {
		r.requests[i] = nil
		if !r.wasOpen[i] {
			sh.backend.resolve(outcomeCounted, req)
		}
		if !r.wasOpen[i] || req.batch == nil {
			complete = false // its decisions are not known here
			continue
		}
		n, decided := sh.decideByReply(f, req)
		admitted += n
		complete = complete && decided
	}
	if complete && !r.Native && admitted != r.Reply.Admitted {
		sh.options.observe().Diverged()
	}
}

// decideByReply decides req by the states that its charges found, notifies its waiter and returns
// the number of admitted charges. If that panics, the fallback decides req, so that the rest of the
// batch is not lost.
func (sh *shard) decideByReply(f *batch, req *request) (admitted int64, decided bool) {
	w := req.waiter
	at := req.repliedAt
	alike := true
	kept := false
	if decided = sh.options.guard(func() {
		req.takeOffOwn(at)
		req.batch.Stored().Decide(at, req.call.Found)
		var uncounted int64
		uncounted, alike = req.settleOwn(at)
		admitted = script.CountAdmitted(req.batch) - uncounted
		kept = req.end.replied(sh.backend.store, req, &f.state)
	}); !decided {
		sh.backend.resolve(outcomeCounted, req)
		sh.fallBack([]*request{req})
		return 0, false
	}
	if !kept {
		req.release()
	}
	sh.options.notify(w, nil)
	return admitted, alike
}

// A batchRun is the part of a batch that one run of the script decides: on a cluster the requests
// of one slot. All native requests share a run.
type batchRun struct {
	script.Run
	requests []*request // nil if resolved
	wasOpen  []bool     // parallel to requests: it was open when the reply came; empty before
	charges  int
	slot     uint16
	isolated bool
}

// groupIntoRuns distributes f.requests among f.runs.
func (f *batch) groupIntoRuns() {
	f.runs = f.runs[:0]
	f.scriptRuns = f.scriptRuns[:0]
	f.grouped = false
	for _, req := range f.requests {
		i := -1
		if !req.isolated {
			i = slices.IndexFunc(f.runs, func(r *batchRun) bool {
				return !r.isolated && r.Native == req.call.Native && (r.Native || r.slot == req.slot)
			})
		}
		if i < 0 {
			i = f.addRun(req)
		}
		r := f.runs[i]
		r.requests = append(r.requests, req)
		r.Add(&req.call)
		r.charges += req.call.Size()
	}
	f.grouped = true
}

// addRun appends a run for requests like req, and returns its index.
func (f *batch) addRun(req *request) int {
	n := len(f.runs)
	if n < cap(f.runs) && f.runs[:n+1][n] != nil {
		f.runs = f.runs[:n+1]
	} else {
		f.runs = append(f.runs, &batchRun{})
	}
	r := f.runs[n]
	f.scriptRuns = append(f.scriptRuns, &r.Run)
	clear(r.requests)
	r.requests = r.requests[:0]
	r.wasOpen = r.wasOpen[:0]
	r.charges = 0
	r.Clear(f.options.storeTime())
	r.slot = req.slot
	r.Native = req.call.Native
	r.isolated = req.isolated
	r.Asking = req.asking
	return n
}
