package leases_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// release releases active leases, with or without costs, and compares the reply. A cost replaces
// the held hits, even beyond the limit.
func (w *world) release(ctx context.Context, leases []grantedLease, withCosts bool) error {
	descs := w.releaseDescriptors(leases)
	var costs []descriptor
	for _, g := range leases {
		if withCosts && g.limit == g.reserve() {
			cost := g.descriptor
			cost.hits = 1 + w.IntN(2*g.limit.amount)
			costs = append(costs, cost)
		}
	}
	descs = append(descs, costs...)
	w.Shuffle(len(descs), func(i, j int) { descs[i], descs[j] = descs[j], descs[i] })
	reply, granted, err := w.call(ctx, descs)
	if err != nil {
		return err
	}
	for i, a := range descs {
		if reply.GetStatuses()[i].GetCode() != rls.RateLimitResponse_OK {
			w.fail(descs, "descriptor %d of an end call is denied; %s", i, w.state(a))
		}
	}
	if len(granted) > 0 {
		w.fail(descs, "the reply to an end call contains the leases %v", granted)
	}
	for _, g := range leases {
		c, n := w.counter(g.descriptor, g.limit), g.number(g.limit)
		if h, ok := c.remove(g.lease); ok && g.limit.amount > 0 {
			c.advance(g.limit, n, time.Now())
			if g.limit.keep && !withCosts {
				c.charge(g.limit, n, h.hits)
			}
		}
	}
	for _, a := range costs {
		for _, l := range a.limited() {
			if l.amount > 0 {
				w.counter(a, l).charge(l, a.number(l), a.hits)
			}
		}
	}
	w.ended = append(w.ended, leases)
	return nil
}

// releaseDescriptors returns descriptors that release leases.
func (w *world) releaseDescriptors(leases []grantedLease) (descs []descriptor) {
	for _, g := range leases {
		a := g.descriptor
		a.hits, a.lease, a.minus = int(g.lease), true, w.IntN(4) > 0
		descs = append(descs, a)
	}
	return descs
}

// releaseAgain releases leases again, maybe with a cost, which counts as ordinary hits.
func (w *world) releaseAgain(ctx context.Context, leases []grantedLease) error {
	descs := w.releaseDescriptors(leases)
	if cost := leases[0].descriptor; w.IntN(2) == 0 && w.makeCost(&cost) {
		descs = append(descs, cost)
	}
	return w.begin(ctx, descs)
}

// releaseElsewhere sends an active lease to a limit that did not grant it.
func (w *world) releaseElsewhere(ctx context.Context, g grantedLease) error {
	a := descriptor{node: pick(w.Rand, w.nodes...), tenant: pick(w.Rand, tenants...)}
	if !a.grantsLeases() || a.node == g.node && a.tenant == g.tenant {
		return nil
	}
	return w.begin(ctx, w.releaseDescriptors([]grantedLease{{a, g.limit, g.lease}}))
}

// makeCost turns a descriptor into a cost without its lease, which counts as ordinary hits. It does
// so only for counters without leases: it is not documented whether such hits must leave space for
// held ones.
func (w *world) makeCost(a *descriptor) bool {
	l := a.reserve()
	if l == nil || slices.ContainsFunc(a.limited(), func(l *limit) bool { return len(w.counter(*a, l).held) > 0 }) {
		return false
	}
	a.hits, a.lease = pick(w.Rand, 0, 2+w.IntN(l.amount)), false
	return true
}

// awaitReturns waits until the hits of a denied request have been returned to the store, which may
// be shortly after the reply.
func (w *world) awaitReturns(ctx context.Context, descs []descriptor) {
	ctx, cancel := context.WithTimeout(ctx, suite.Patience)
	defer cancel()
	for w.replicas > 0 && w.differences(descs) != "" {
		select {
		case <-ctx.Done():
			w.fail(descs, "the hits of a denied request are not returned: %s", w.differences(descs))
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// differences compares counters on the debug listener with the ledger.
func (w *world) differences(descs []descriptor) string {
	for _, a := range descs {
		limits := a.limited()
		if len(limits) == 0 || len(limits) < len(a.enforced()) || a.number(limits[0]).n == 0 {
			continue
		}
		all := slices.DeleteFunc(w.readCounters(a), func(l shownCounter) bool { return l.Shadow })
		for i, l := range limits {
			c := w.counter(a, l)
			c.advance(l, a.number(l), time.Now())
			held := float64(c.heldHits())
			if got := all[i]; got.Held != nil && (got.Held.Requests != len(c.held) || got.Held.Hits != int(held)) || got.Used < c.low+held-1 || got.Used > c.top+held+1 {
				return fmt.Sprintf("%v: %s: the service has %+v; %s", a, l.name, got, w.state(a))
			}
		}
	}
	return ""
}

// step makes one random call.
func (w *world) step(ctx context.Context) error {
	choice := w.IntN(100)
	switch {
	case choice == 50:
		return w.resetOne()
	case choice < 6 && len(w.ended) > 0:
		return w.releaseAgain(ctx, pick(w.Rand, w.ended[max(0, len(w.ended)-20):]...))
	case choice < 12 && len(w.running) > 0:
		return w.releaseElsewhere(ctx, pick(w.Rand, pick(w.Rand, w.running...)...))
	case choice < 45 && len(w.running) > 0:
		return w.endOne(ctx)
	}
	nodes := w.nodes[:len(w.nodes)/2] // of one domain
	if w.IntN(2) == 0 {
		nodes = w.nodes[len(w.nodes)/2:]
	}
	var descs []descriptor
	for range 1 + w.IntN(3) {
		a := descriptor{node: pick(w.Rand, nodes...), tenant: pick(w.Rand, tenants...), hits: 1}
		if slices.ContainsFunc(descs, func(b descriptor) bool { return a.node == b.node && a.tenant == b.tenant }) {
			continue
		}
		w.setHits(&a)
		if descs = append(descs, a); a.grantsLeases() && a.hits == 1 && w.IntN(12) == 0 {
			descs = []descriptor{a, a} // no third one: if it denied both, the effect of one on the other is not documented
			break
		}
	}
	if choice > 95 && w.makeCost(&descs[0]) {
		descs = descs[:1]
	}
	return w.begin(ctx, descs)
}

// setHits sets the hits of a descriptor, and maybe a limit.
func (w *world) setHits(a *descriptor) {
	limits := a.enforced()
	if len(limits) == 0 {
		return
	}
	l := limits[0]
	switch {
	case a.reserve() != nil:
		a.hits = min(1, w.IntN(4))
	case len(limits) == 1 && l.algorithm == concurrency:
		a.hits = pick(w.Rand, 0, 1, 1, 1, 1, 3)
	default:
		a.hits = 1 + w.IntN(3)
	}
	if len(limits) == 1 && w.IntN(4) == 0 {
		n := l.number
		n.n = pick(w.Rand, 0, l.n*2, l.n*2, l.n*3, l.n)
		n.unit = pick(w.Rand, l.unit, l.unit, "day", "month")
		a.over = &n
	}
}

// endOne ends a running request, or its leases for one of its tenants.
func (w *world) endOne(ctx context.Context) error {
	i := w.IntN(len(w.running))
	all := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	if w.IntN(4) == 0 {
		first := all[0]
		var now, later []grantedLease
		for _, g := range all {
			if g.node == first.node && g.tenant == first.tenant {
				now = append(now, g)
			} else {
				later = append(later, g)
			}
		}
		if all = now; len(later) > 0 {
			w.running = append(w.running, later)
		}
	}
	return w.release(ctx, all, w.IntN(3) > 0)
}

// resetOne resets the counters of a descriptor: they become empty, and their leases are released.
func (w *world) resetOne() error {
	a := descriptor{node: pick(w.Rand, w.nodes...), tenant: pick(w.Rand, tenants...)}
	plain := slices.ContainsFunc(a.limited(), func(l *limit) bool { return l.algorithm != concurrency && l.amount == 0 })
	if len(a.limited()) == 0 || plain && w.replicas > 0 { // other replicas may deny these hits for another second
		return nil
	}
	w.log = append(w.log, fmt.Sprintf("   reset %v", a))
	w.reset(a)
	for _, l := range a.limited() {
		c := w.counter(a, l)
		for _, h := range c.held {
			for i, all := range w.running {
				at := slices.IndexFunc(all, func(g grantedLease) bool { return g.lease == h.lease && w.counter(g.descriptor, g.limit) == c })
				if at >= 0 {
					w.ended = append(w.ended, []grantedLease{all[at]})
					w.running[i] = slices.Delete(all, at, at+1)
				}
			}
		}
		*c = counter{}
	}
	w.running = slices.DeleteFunc(w.running, func(all []grantedLease) bool { return len(all) == 0 })
	return nil
}

// applyRestart applies a restart to the ledger: unless leases are restored, all leases end.
func (w *world) applyRestart(restored bool) {
	if restored {
		return
	}
	for _, c := range w.counters {
		c.held = nil
	}
	w.ended, w.running = append(w.ended, w.running...), nil
}

// play makes random calls, and finally compares all counters.
func (w *world) play(ctx context.Context, calls int) error {
	for w.calls = 0; w.calls < calls; {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	w.compareAll()
	return nil
}

// finish ends all requests.
func (w *world) finish(ctx context.Context) error {
	for len(w.running) > 0 {
		if err := w.endOne(ctx); err != nil {
			return err
		}
	}
	w.compareAll()
	return nil
}

func (w *world) compareAll() {
	for _, n := range w.nodes {
		for _, tenant := range tenants {
			descs := []descriptor{{node: n, tenant: tenant}}
			if d := w.differences(descs); d != "" {
				w.fail(descs, "%s", d)
			}
		}
	}
}
