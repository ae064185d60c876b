package store

import "github.com/sluice-ratelimit/sluice/limiter"

// An ending determines how a request ends. Its batch has one owner at any time:
//
//	the waiter  until a shard accepts the request, and again after Decided
//	the shard   while the request is in shard.open: nothing uses the batch
//	the ender   the goroutine that removes the request from shard.open: by a reply, at its deadline,
//	            or because the shard has become unavailable
//
// The ender calls Decided once, as the last step, except that a request that outlives its shard has no
// ender if its connection fails while the shard ends:
//
//	the store has decided     the batch is decided by the reply, and replied is called
//	it has not, fallsBack     the fallback decides; fellBack is called if the request was sent
//	it has not, !fallsBack    Decided gets an error
//
// After sending a request, a sender uses it until the outcome is known, but not its batch. A request
// without a batch has no waiter, and none of this applies.
type ending interface {
	// replied is called when the store has decided req and its batch. It reports whether it keeps
	// req, to release it later. left is scratch memory.
	replied(s *Store, req *request, left *limiter.State) (keeps bool)
	// fallsBack reports whether the fallback decides the request if the store does not.
	fallsBack() bool
	// fellBack is called if the fallback has decided req, which was sent. It is called with
	// backend.outcomeMu locked.
	fellBack(req *request)
	// outlivesShard reports whether the reply to a request that was sent is awaited even if the
	// shard ends. Then its deadline is awaitReply.
	outlivesShard() bool
}

// callerEnding is the ending of a caller's request, and embedded in others.
type callerEnding struct{}

func (callerEnding) replied(s *Store, req *request, left *limiter.State) (keeps bool) {
	s.updateMirror(req.repliedAt, req.batch, left)
	req.mirrorOwn(req.repliedAt, s.mirror)
	return false
}

func (callerEnding) fallsBack() bool     { return true }
func (callerEnding) fellBack(*request)   {}
func (callerEnding) outlivesShard() bool { return false }

// decideFor makes req a request that decides b for w. A w of this package may be an ending itself.
func (req *request) decideFor(w limiter.Waiter, now limiter.Time, b *limiter.Batch) {
	req.now = now
	req.batch = b
	req.waiter = w
	if end, ok := w.(ending); ok {
		req.end = end
	}
}
