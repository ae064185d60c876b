package simulation

import (
	"cmp"
	"slices"
	"time"
)

// disturbs selects the faults that may change decisions of orders, whose rules are reloaded unchanged.
func disturbs(f fault) bool { return f.kind != "reload" && f.kind != "partition" && f.kind != "resize" }

// addedByOperator returns how many more hits the changes of an operator admit in an interval.
func (w *world) addedByOperator(l *limit, from, to time.Time) (hits uint64) {
	since := from
	if w.usesBlocks(l) { // unused hits that a refund or a reset takes off the count are admitted later
		if since = from.Truncate(l.window); l.algorithm != "fixed_window" { // they count for longer
			since = from.Add(-2 * (l.window + time.Duration(l.burst)*l.window/time.Duration(l.n)))
		}
	}
	for _, c := range l.changes {
		if c.from.After(to) || c.to.Before(since) {
			continue
		}
		switch c.kind {
		case "row": // "Rows change limits, never counters" (docs/tables.md)
			hits += (max(c.n, l.n) - l.n) * uint64(to.Sub(from)/l.window+2)
		case "reset": // "A reset makes the counter as new" (docs/algorithms.md, "Inspecting and resetting a counter")
			hits += max(l.n, l.burst)
		case "refund": // docs/algorithms.md, "Refunds"
			hits += c.n
		}
	}
	return hits
}

// changedAt returns the change of a rule that was in progress on the replica of a request.
func (o *orderRule) changedAt(e *entry) *ruleChange {
	for i, c := range o.changes {
		if c.kind == "rule" && c.replica == e.replica && c.from.Before(e.received) && c.to.After(e.sent) {
			return &o.changes[i]
		}
	}
	return nil
}

// check verifies the decisions of all requests.
func (o *orders) check() {
	for _, k := range o.kinds {
		for _, rule := range k.rules {
			o.checkRule(k, rule)
		}
	}
}

func (o *orders) checkRule(k *orderKind, rule *orderRule) {
	var entries [][]*entry // by limit
	for _, l := range rule.limits {
		entries = append(entries, o.world.ledger.of(l, ordersTenant))
	}
	o.checkDenied(k, rule, entries)
	if k.waits > 0 {
		o.checkDelays(k, rule, entries[0])
	}
	if rule.shadow {
		return // it denies nothing
	}
	for i, l := range rule.limits {
		l.changes = rule.changes
		var certain []*entry
		for _, e := range entries[i] {
			switch {
			case e.outcome != admitted || rule.changedAt(e) != nil:
			case k.waits == 0:
				certain = append(certain, e)
			case o.world.during(e.sent, e.received, disturbs) == 0:
				// It was decided, or its delay ended, before the replies of the store and of sluice.
				certain = append(certain, &entry{outcome: admitted, replica: e.replica, hits: e.hits, sent: later(e.sent, e.received.Add(-2*maxLatency)), received: e.received})
			}
		}
		checkRate(o.world, l, ordersTenant, certain)
	}
}

// maxLatency is the latency of bytes in a network without faults, with that of reading them.
const maxLatency = 6 * time.Millisecond

// checkDenied verifies that each denial has a reason, and that nothing is admitted during a penalty.
func (o *orders) checkDenied(k *orderKind, rule *orderRule, entries [][]*entry) {
	var starters []*entry
	if rule.penalty > 0 {
		starters = slices.DeleteFunc(slices.Clone(entries[0]), func(e *entry) bool { return !startsPenalty(e, entries[0]) })
	}
	var charges [][]charge // by limit
	for i, l := range rule.limits {
		charges = append(charges, o.world.chargesOf(l, entries[i]))
	}
	for i, e := range entries[0] {
		during := rule.changedAt(e)
		switch {
		case e.outcome == admitted && rule.penalty > 0:
			o.checkPenalty(rule, starters, e)
		case e.outcome != denied:
		case rule.shadow: // docs/rules.md, "shadow_mode"
			o.world.fail("orders: the rule %s, which only counts, denied a request at %v", rule.key, e.sent.Sub(o.world.began))
			return
		case during != nil && k.name == "removed" && e.sent.After(during.active) && e.received.Before(during.until):
			o.world.fail("orders: %s denied a request at %v, although it has no rule for %s", e.replica, e.sent.Sub(o.world.began), rule.key)
			return
		case during == nil && !o.hasReason(k, rule, entries, charges, i):
			o.world.fail("orders: %s denied %d hits at %v without a reason", rule.key, e.hits, e.sent.Sub(o.world.began))
			return
		}
	}
}

// checkPenalty verifies that no request before e that has started a penalty has one at e
// (docs/algorithms.md, "Penalties": every request on that counter is denied).
func (o *orders) checkPenalty(rule *orderRule, starters []*entry, e *entry) {
	for _, x := range starters {
		if !e.sent.After(x.received) || e.received.After(x.sent.Add(rule.penalty-time.Millisecond)) ||
			o.world.during(x.sent.Add(-10*time.Second), e.received, disturbs) > 0 ||
			slices.ContainsFunc(rule.changes, func(c ruleChange) bool { return c.from.Before(e.received) && c.to.Add(afterReset).After(x.sent) }) {
			continue
		}
		o.world.fail("orders: %s admitted a request at %v, although it denied one at %v and has a penalty of %v",
			rule.key, e.sent.Sub(o.world.began), x.sent.Sub(o.world.began), rule.penalty)
		return
	}
}

// startsPenalty reports whether x was certainly denied by the limit and not by a penalty, because a
// request was admitted since the denials before.
func startsPenalty(x *entry, entries []*entry) bool {
	var last time.Time // when the last of the other denials may have been decided
	for _, y := range entries {
		if y != x && y.outcome != admitted && !y.sent.After(x.received) {
			last = later(last, y.received)
		}
	}
	return x.outcome == denied && slices.ContainsFunc(entries, func(y *entry) bool {
		return y.outcome == admitted && y.sent.After(last) && y.received.Before(x.sent)
	})
}

// afterReset is how long other replicas may deny without asking the store (docs/store.md, "What it
// costs": a refund, a reset or a raised limit elsewhere takes effect within 1.1 s).
const afterReset = 1100 * time.Millisecond

// hasReason reports whether the charges before entry i may have used up a limit of the rule. With
// all_or_nothing or a list, hits that another limit denied do not count (docs/rules.md).
func (o *orders) hasReason(k *orderKind, rule *orderRule, entries [][]*entry, charges [][]charge, i int) bool {
	for n, l := range rule.limits {
		e, longest := entries[n][i], rule.limits[len(rule.limits)-1].window
		if n == 0 && o.world.during(e.sent.Add(-2*longest-10*time.Second), e.received, disturbs) > 0 {
			return true
		}
		if o.world.usesBlocks(l) {
			return true
		}
		if l.burst > 0 && o.world.during(o.world.began, e.received, func(f fault) bool { return f.kind == "clock" }) > 0 {
			return true // if hits were counted ahead of time, it may be nearly full ever since
		}
		var counted []charge
		for _, x := range charges[n] {
			if x.entry == e || x.sent.After(e.received) {
				continue
			}
			switch {
			case rule.penalty > 0 && x.outcome != admitted && x.received.Add(6*time.Second).After(e.sent):
				return true
			case (x.outcome == refunded || x.outcome == denied && k.name == "group") && x.received.Add(afterReset).After(e.sent):
				return true // a replica may repeat a denial of that moment (docs/store.md, "Sentinel and clusters")
			case (x.outcome == refunded || x.outcome == denied && len(rule.limits) > 1) && !returnedInTime(l, x.entry):
				counted = append(counted, x)
			case x.outcome != denied && x.outcome != refunded && !o.resetBetween(rule, x.entry, e):
				counted = append(counted, x)
			}
		}
		most := l.n
		for _, c := range rule.changes {
			if c.kind == "row" && c.from.Before(e.received) && c.to.Add(afterReset).After(e.sent) {
				most = min(most, c.n)
			}
		}
		most = cmp.Or(l.burst, most)
		if k.waits > 0 {
			most += uint64(max(0, min(k.waits, o.world.callTimeout-20*time.Millisecond)) * time.Duration(l.n) / l.window)
		}
		if o.world.mostUsed(l, counted, e)+float64(e.hits) > float64(most) {
			return true
		}
	}
	return false
}

// returnedInTime reports whether hits that another slot or store denied were returned in the
// sub-window in which they were charged. Others stay (docs/store.md, "Sentinel and clusters").
func returnedInTime(l *limit, e *entry) bool {
	part := l.part()
	return l.algorithm != "sliding_window" || e.sent.Truncate(part).Equal(e.received.Add(10*time.Millisecond).Truncate(part))
}

// resetBetween reports whether a reset has certainly removed the hits of x before e.
func (o *orders) resetBetween(rule *orderRule, x, e *entry) bool {
	return slices.ContainsFunc(rule.changes, func(c ruleChange) bool {
		return c.kind == "reset" && c.ok && x.outcome == admitted && x.received.Before(c.from) && c.to.Add(afterReset).Before(e.sent)
	})
}

// checkDelays verifies that no response is sent later than when it is due: when all requests that
// arrived before have been released, one per interval (docs/algorithms.md, "Delayed responses").
func (o *orders) checkDelays(k *orderKind, rule *orderRule, entries []*entry) {
	l := rule.limits[0]
	interval := l.window / time.Duration(l.n)
	for _, e := range entries {
		if e.outcome != admitted || o.world.during(e.sent.Add(-20*time.Second), e.received, disturbs) > 0 {
			continue
		}
		since := e.sent.Add(-20 * time.Second)
		drained := since.Add(time.Duration(l.burst)*interval + k.waits) // the TAT, if the queue was full then
		for _, x := range entries {
			if x.outcome != denied && !x.sent.After(e.sent.Add(4*maxLatency)) && x.sent.After(since) {
				drained = later(drained, x.sent.Add(4*maxLatency)).Add(interval)
			}
		}
		if due := drained.Add(-time.Duration(l.burst) * interval); e.received.After(later(due, e.sent.Add(4*maxLatency)).Add(2 * maxLatency)) {
			o.world.fail("orders: the response to a request at %v came at %v, but was due before %v (%v)",
				e.sent.Sub(o.world.began), e.received.Sub(o.world.began), due.Sub(o.world.began), k.waits)
			return
		}
	}
}

// checkAtRest verifies that all counters are as new.
func (o *orders) checkAtRest() {
	for _, k := range o.kinds {
		for _, rule := range k.rules {
			left, ok := o.world.remaining(ordersDomain, rule.key, ordersTenant)
			want := cmp.Or(rule.limits[0].burst, rule.limits[0].n)
			for _, l := range rule.limits[1:] {
				want = min(want, l.n)
			}
			if ok && (left < want || left > want && k.waits == 0) {
				o.world.fail("orders: %s has %d left at rest, want %d", rule.key, left, want)
			}
		}
	}
}
