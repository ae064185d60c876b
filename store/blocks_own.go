package store

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An ownPart is hits of this replica's block that are part of a charge, so the store is charged with the
// rest only: a request that is larger than the block is not denied because of it.
type ownPart struct {
	hot     *hotCounter
	balance *balance
	word    uint64 // word of balance after the hits were spent
	period  period // period in which the hits may be used; balance may have a later one when the store decides
	until   time.Duration
	hits    uint64
	charge  int
	all     bool // the rest is 0
	late    bool // the block had ended when the store decided
	unused  bool // the hits were given back
}

// spendOwn takes hits from blocks for b, which the store decides, and takes them off its charges until
// restoreHits is called.
func (bl *blocks) spendOwn(m moment, b *limiter.Batch, req *request) {
	if slices.ContainsFunc(b.Charges, func(c limiter.Charge) bool { return c.Refund }) {
		return // it may be set off against a charge
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if !usesBlocks(c) || sharesCounter(b, i) {
			continue
		}
		h := bl.find(c)
		if h == nil || h.policy.Limit != c.Policy.Limit {
			continue
		}
		if h.usable(m) >= c.Hits && !h.tight.Load() {
			continue // another limit is why the store decides
		}
		for _, of := range h.balances {
			part := ownPart{hot: h, balance: of, charge: i}
			if part.spend(c.Hits, m) {
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
func (o *ownPart) spend(hits uint64, m moment) bool {
	for {
		word := o.balance.word.Load()
		o.hits = min(word&hitsMask, hits)
		o.period = o.balance.period()
		o.until = time.Duration(o.balance.until.Load())
		if o.hits == 0 || !o.balance.usable(m) {
			return false
		}
		if o.balance.word.CompareAndSwap(word, word-o.hits) {
			o.word = word - o.hits
			return true
		}
	}
}

// hasEnded reports whether the block has ended at the time at of the store. A charge of a fixed window is
// in the same window.
func (o *ownPart) hasEnded(at limiter.Time) bool {
	return o.hot.policy.Algorithm != limiter.FixedWindow &&
		(!o.period.contains(at) || o.hot.blocks.elapsed() >= o.until)
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
		if part.late = part.hasEnded(at); !part.late {
			req.call.Found[part.charge].TakeOff(req.batch.Charges[part.charge].Policy, part.hits)
		}
	}
}

// settleOwn is called when the store has decided. It gives back the own hits of charges that were denied.
// uncounted is the number of charges that only own hits admitted, which the store did not count. alike is
// false if a block had ended, so that the store decided with other hits than this replica.
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
				bl.store.recordUsed(part.hot, part.hits, at)
				bl.store.main.requestSync(0)
			}
		case d.Charged == 0:
			part.balance.giveBack(part.word, part.hits)
			part.unused = true
		case part.all && !d.Over:
			uncounted++
		}
		if !part.late && d.Charged > 0 {
			req.batch.Stored().Precharge(part.charge, part.hits)
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

// mergeWindows merges fixed windows of b that have a block into the mirror, before it decides b.
func (bl *blocks) mergeWindows(at limiter.Time, b *limiter.Batch) {
	if bl == nil {
		return
	}
	for i := range b.Charges {
		if h := bl.find(&b.Charges[i]); h != nil {
			end := periodAt(&h.policy, at).end
			if w := h.windowOf(end); w != nil {
				h.mergeWindow(w, at, end)
			}
		}
	}
}
