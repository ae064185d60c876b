package store

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An ownPart is hits of this replica's block that are part of a charge, so the store is charged with the
// rest only: a request that is larger than the block is not denied because of it.
type ownPart struct {
	hot    *hotCounter
	w      *balance
	word   uint64       // of w, after the hits were spent
	end    limiter.Time // of the block; w may have a later one when the store decides
	until  time.Duration
	hits   uint64
	charge int
	all    bool // the rest is 0
	late   bool // the block had ended when the store decided
	unused bool // the hits were given back
}

// spendOwn takes hits from blocks for b, which the store decides, and takes them off its charges until
// restoreHits is called.
func (bl *blocks) spendOwn(at limiter.Time, b *limiter.Batch, req *request) {
	if slices.ContainsFunc(b.Charges, func(c limiter.Charge) bool { return c.Refund }) {
		return // it may be set off against a charge
	}
	elapsed := bl.elapsed()
	for i := range b.Charges {
		c := &b.Charges[i]
		if !usesBlocks(c) || sharesCounter(b, i) {
			continue
		}
		h := bl.find(c)
		if h == nil || h.policy.Limit != c.Policy.Limit {
			continue
		}
		end := periodEnd(c.Policy, at)
		if h.usable(at, end, elapsed) >= c.Hits && !h.tight.Load() {
			continue // another limit is why the store decides
		}
		for k := range h.balances {
			part := ownPart{hot: h, w: &h.balances[k], charge: i}
			if part.spend(c.Hits, at, end, elapsed) {
				c.Hits -= part.hits
				part.all = c.Hits == 0
				req.own = append(req.own, part)
			}
		}
	}
}

// sharesCounter reports whether another charge has the counter of charge i. If one of them is denied and
// the other one is not, hits that the first one gives back would count for neither.
func sharesCounter(b *limiter.Batch, i int) bool {
	for k := range b.Charges {
		if k != i && b.Charges[k].ID == b.Charges[i].ID {
			return true
		}
	}
	return false
}

// spend takes up to the given hits off the balance, and reports whether it has any.
func (o *ownPart) spend(hits uint64, at, end limiter.Time, elapsed time.Duration) bool {
	for {
		word := o.w.word.Load()
		o.hits, o.end, o.until = min(word&hitsMask, hits), limiter.Time(o.w.end.Load()), time.Duration(o.w.until.Load())
		if o.hits == 0 || !o.w.usable(at, end, elapsed) {
			return false
		}
		if o.w.word.CompareAndSwap(word, word-o.hits) {
			o.word = word - o.hits
			return true
		}
	}
}

// hasEnded reports whether the block has ended at the time at of the store.
func (o *ownPart) hasEnded(p *limiter.Policy, at limiter.Time) bool {
	ended := at >= o.end
	switch p.Algorithm {
	case limiter.FixedWindow: // the charge is in the same window
		return false
	case limiter.SlidingWindow:
		ended = periodEnd(p, at) != o.end
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingLog, limiter.Concurrency:
	}
	return ended || o.hot.blocks.elapsed() >= o.until
}

// usable returns the number of usable unused hits.
func (h *hotCounter) usable(at, end limiter.Time, elapsed time.Duration) (hits uint64) {
	for i := range h.balances {
		if w := &h.balances[i]; w.usable(at, end, elapsed) {
			hits += w.unused()
		}
	}
	return hits
}

// restoreHits undoes the changes of spendOwn to the charges.
func (req *request) restoreHits(b *limiter.Batch) {
	for i := range req.own {
		b.Charges[req.own[i].charge].Hits += req.own[i].hits
	}
}

// takeOffOwn makes the states that the charges found those without the own hits, which the store has
// counted with the block. The store decided at the time at.
func (req *request) takeOffOwn(at limiter.Time) {
	for i := range req.own {
		part := &req.own[i]
		p := req.batch.Charges[part.charge].Policy
		if part.late = part.hasEnded(p, at); !part.late {
			req.call.Found[part.charge].TakeOff(p, part.hits)
		}
	}
}

// settleOwn gives own hits back that were not charged. It returns the number of charges that the store
// did not count as admitted, because the own hits sufficed, and whether the store has decided the request
// as this replica did.
func (req *request) settleOwn(at limiter.Time) (uncounted int64, alike bool) {
	alike = true
	for i := range req.own {
		part := &req.own[i]
		d := &req.batch.Decisions[part.charge]
		bl := part.hot.blocks
		switch {
		case part.late:
			alike = false
			bl.count(blockLost, part.hits)
			if d.Charged > 0 {
				end := periodEnd(&part.hot.policy, at)
				bl.store.recordUsed(part.hot, part.hits, at, max(end, at+1))
				bl.store.main.requestSync(0)
			}
		case d.Charged == 0:
			part.w.giveBack(part.word, part.hits)
			part.unused = true
		case part.all && !d.Over:
			uncounted++
		}
	}
	return uncounted, alike
}

// mirrorOwn adds own hits that were given back to the mirror: during an outage the block is used, too.
func (req *request) mirrorOwn(at limiter.Time, mirror *limiter.Table) {
	for i := range req.own {
		if part := &req.own[i]; part.unused {
			found := &req.call.Found[part.charge]
			found.PutOn(req.batch.Charges[part.charge].Policy, part.hits)
			req.batch.Stored().MergeInto(mirror, at, part.charge, found)
		}
	}
	req.own = req.own[:0]
}

// loseOwn gives own hits up: the store may have decided the request, or may do so later.
func (req *request) loseOwn() {
	for i := range req.own {
		req.own[i].hot.blocks.count(blockLost, req.own[i].hits)
	}
	req.own = req.own[:0]
}
