package store

import (
	"bytes"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// If another program wrote the key of a counter, the store does not decide the request. The request
// is then decided in parts, one for each counter: the part with that key by the fallback, all
// others by the store.

// decidePerCounter starts to decide req, for which r's reply names a foreign key, counter by
// counter. It reports false if the fallback must decide the complete request: all charges are on
// one counter, some are a choice, or the fallback is [Error].
func (sh *shard) decidePerCounter(r *batchRun, req *request) bool {
	if req.batch == nil || !req.end.fallsBack() || sh.options.Fallback == Error {
		return false
	}
	if p, ok := req.waiter.(*part); ok && p.split.perCounter {
		return false
	}
	if slices.ContainsFunc(req.batch.Charges, func(c limiter.Charge) bool { return c.Choice != limiter.NoChoice }) {
		return false
	}
	names := make([][]byte, len(req.batch.Charges))
	for i := range names {
		names[i] = req.call.NameWithoutStart(i)
	}
	if !slices.ContainsFunc(names[1:], func(name []byte) bool { return !bytes.Equal(name, names[0]) }) {
		return false
	}
	var all *split
	if !sh.options.guard(func() { all = sh.backend.store.split(req.now, req.batch, names, true) }) {
		return false
	}
	all.deadline = req.deadline
	all.bulk = req.bulk
	if !req.call.Native {
		all.start(req.waiter)
		return true
	}
	if req.call.Negative {
		sh.recount(req)
	}
	all.setWaiter(req.waiter)
	at := sh.counterTime(r.Reply.Now, req.slotByStart)
	n := len(all.parts)
	for i := range n { // native calls have one charge per counter
		if p := all.parts[i]; req.call.Failed(i) {
			p.start()
		} else {
			p.Decided(p.decideByStates(sh.backend.store, at, req.call.Found[i:i+1]))
		}
	}
	return true
}

// decideByStates decides p by the states that the store found at a time of its clock.
func (p *part) decideByStates(s *Store, at limiter.Time, found []limiter.State) error {
	p.batch.Stored().OffsetRefunds()
	if !s.options.guard(func() { p.batch.Stored().Decide(at, found) }) {
		return s.fallBack(p.now, &p.batch)
	}
	p.keepRequest(newRequest(), at)
	return nil
}
