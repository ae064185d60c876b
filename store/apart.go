package store

import (
	"bytes"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A request that the store has left alone, because another program wrote the key of one of its counters, is decided in parts: one
// for each counter. The fallback decides the part with that key, and the store all others.

// decideApart begins to decide a, which r's reply says is on a foreign key, counter by counter. It reports false if the fallback
// must decide all of a: there is one counter, or without a decision of one there is none of the request.
func (l *lane) decideApart(r *cargo, a *ask) bool {
	if a.batch == nil || a.strict || l.options.Fallback == Error {
		return false
	}
	if p, ok := a.waiter.(*part); ok && p.split.apart {
		return false
	}
	names := make([][]byte, len(a.batch.Charges))
	for i := range names {
		names[i] = a.call.Named(i)
	}
	if !slices.ContainsFunc(names[1:], func(name []byte) bool { return !bytes.Equal(name, names[0]) }) {
		return false
	}
	var all *split
	if !l.options.guard(func() { all = l.fleet.store.split(a.now, a.batch, names, true) }) {
		return false
	}
	all.until, all.bulk = a.until, a.bulk
	if !a.call.Native {
		all.begin(a.waiter)
		return true
	}
	if a.call.Negative {
		l.recount(a)
	}
	all.expect(a.waiter)
	at := l.convert(r.Reply.Now, a.startSays)
	n := len(all.parts)
	for i := range n { // native calls have one charge on each counter
		if p := all.parts[i]; a.call.Failed(i) {
			p.begin()
		} else {
			p.Decided(p.conclude(l.options, at, a.call.Found[i:i+1]))
		}
	}
	return true
}

// conclude decides p by what the store has said of its counters at a time of its clock.
func (p *part) conclude(o *Options, at limiter.Time, found []limiter.State) error {
	p.batch.Stored().OffsetRefunds()
	if !o.guard(func() { p.batch.Stored().Decide(at, found) }) {
		return o.fallBack(p.begun, &p.batch)
	}
	p.keep(newAsk(), at)
	return nil
}

// placeApart is place in a split by counters.
func (r *split) placeApart(f *fleet, slot uint16, p *limiter.Policy, name []byte) *part {
	at := slices.IndexFunc(r.parts, func(p *part) bool { return bytes.Equal(p.names[0], name) })
	if at >= 0 {
		return r.parts[at]
	}
	return r.more(f, slot, f.timeOf(slot, r.now, p, name))
}
