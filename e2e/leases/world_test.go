package leases_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// descriptor is a descriptor of a call: its rule and tenant, and its hits or lease.
type descriptor struct {
	*node

	tenant string
	over   *number
	hits   int // default 1
	lease  bool
	minus  bool // is_negative_hits
}

func (a descriptor) String() string {
	text := fmt.Sprintf("%s %s=%s", a.domain, a.key, a.tenant)
	if a.over != nil {
		text += fmt.Sprintf(" limit %d/%s", a.over.n, a.over.unit)
	}
	if a.lease {
		return fmt.Sprintf("%s lease %d", text, a.hits)
	}
	return fmt.Sprintf("%s hits %d", text, a.hits)
}

func (a descriptor) number(l *limit) number { return l.numberFor(a.tenant, a.over) }

// limited returns the enforced limits that apply to this tenant.
func (a descriptor) limited() []*limit {
	return slices.DeleteFunc(a.enforced(), func(l *limit) bool { return a.number(l).unlimited })
}

// reserve returns the first limit with reserve, or nil.
func (a descriptor) reserve() *limit {
	for _, l := range a.limited() {
		if l.amount > 0 {
			return l
		}
	}
	return nil
}

// toProto returns the descriptor as Envoy sends it.
func (a descriptor) toProto() *rlcommon.RateLimitDescriptor {
	d := &rlcommon.RateLimitDescriptor{
		Entries:        []*rlcommon.RateLimitDescriptor_Entry{{Key: a.key, Value: a.tenant}},
		IsNegativeHits: a.minus,
	}
	if a.hits != 1 {
		d.HitsAddend = wrapperspb.UInt64(uint64(a.hits))
	}
	if a.over != nil {
		d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: uint32(a.over.n),
			Unit:            typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(a.over.unit)]),
		}
	}
	return d
}

// grantedLease is a lease in a reply, with the descriptor that acquired it.
type grantedLease struct {
	descriptor

	limit *limit
	lease uint64
}

// world is the rules and tenants of one seed, with their ledger.
type world struct {
	*rand.Rand

	seed         int
	nodes        []*node
	clients      []rls.RateLimitServiceClient
	readCounters func(descriptor) []shownCounter // reads counters on the debug listener
	reset        func(descriptor)                // resets counters on the debug listener
	replicas     int                             // number of replicas that share a store; 0 without a store
	counters     map[string]*counter
	running      [][]grantedLease // requests with active leases
	ended        [][]grantedLease // requests whose leases were released
	calls        int
	log          []string
	violations   []string
}

// shownCounter is a counter on the debug listener.
type shownCounter struct {
	Used   float64
	Shadow bool
	Held   *struct{ Requests, Hits int } // nil for a counter in a store
}

func (w *world) counter(a descriptor, l *limit) *counter {
	n := a.number(l)
	id := fmt.Sprintf("%s %s=%s %s %v", a.domain, a.key, a.tenant, l.algorithm, n.window())
	if w.counters[id] == nil {
		w.counters[id] = &counter{}
	}
	return w.counters[id]
}

// fail records a violation, with the latest calls of the same tenants.
func (w *world) fail(descs []descriptor, format string, args ...any) {
	var of []string
	for _, line := range w.log {
		for _, a := range descs {
			if strings.Contains(line, fmt.Sprintf("%s=%s ", a.key, a.tenant)) && strings.Contains(line, a.domain) {
				of = append(of, line)
				break
			}
		}
	}
	w.violations = append(w.violations, fmt.Sprintf("seed %d, call %d: %s\nrules:\n%s\n  %s", w.seed, w.calls,
		fmt.Sprintf(format, args...), yaml(nodesOf(descs)), strings.Join(of[max(0, len(of)-25):], "\n  ")))
}

func nodesOf(descs []descriptor) (nodes []*node) {
	for _, a := range descs {
		if !slices.Contains(nodes, a.node) {
			nodes = append(nodes, a.node)
		}
	}
	return nodes
}

// call sends descriptors of one domain in a call, over the connections round robin. It returns the
// leases of the reply.
func (w *world) call(ctx context.Context, descs []descriptor) (*rls.RateLimitResponse, map[string]uint64, error) {
	request := &rls.RateLimitRequest{Domain: descs[0].domain}
	for _, a := range descs {
		request.Descriptors = append(request.Descriptors, a.toProto())
	}
	w.calls++
	reply, err := w.clients[w.calls%len(w.clients)].ShouldRateLimit(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	leases := map[string]uint64{}
	for name, value := range reply.GetDynamicMetadata().GetFields() {
		leases[name] = uint64(value.GetNumberValue())
	}
	var line strings.Builder
	for i, a := range descs {
		s := reply.GetStatuses()[i]
		fmt.Fprintf(&line, "[%v: %v, %d left] ", a, s.GetCode(), s.GetLimitRemaining())
	}
	w.log = append(w.log, fmt.Sprint(w.calls, ": ", line.String(), leases))
	return reply, leases, nil
}

// amount returns the hits that a descriptor charges to a limit, and whether it gets a lease for
// them. Hits of its own, other than 1, may be a cost, which holds nothing.
func (a descriptor) amount(l *limit) (hits int, held bool) {
	switch {
	case l.algorithm == concurrency && a.hits != 1 && slices.ContainsFunc(a.limits, func(l *limit) bool { return l.algorithm != concurrency }):
		return 0, false
	case l.algorithm == concurrency:
		return min(a.hits, 1), a.hits > 0
	case l.amount > 0 && a.hits == 1:
		return min(l.amount, a.number(l).burst), true
	}
	return a.hits, false
}

// holds reports whether a descriptor gets a lease.
func (a descriptor) holds() bool {
	return slices.ContainsFunc(a.limited(), func(l *limit) bool {
		_, held := a.amount(l)
		return held
	})
}

// begin starts a request, or charges hits without a lease, and compares the reply with the ledger.
func (w *world) begin(ctx context.Context, descs []descriptor) error {
	reply, leases, err := w.call(ctx, descs)
	if err != nil {
		return err
	}
	received := time.Now()
	charged, denied, fit := map[*counter]int{}, false, make([]bool, len(descs))
	for i, a := range descs {
		fit[i] = reply.GetStatuses()[i].GetCode() == rls.RateLimitResponse_OK
		denied = denied || !fit[i]
		if want := w.decide(a, charged, received); want != unknown && fit[i] != (want == fits) {
			w.fail(descs, "descriptor %d admitted: %v, want %v; %s", i, fit[i], !fit[i], w.state(a))
		}
	}
	if got := reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT; got != denied {
		w.fail(descs, "the request is denied: %v, want %v", got, denied)
	}
	if denied {
		w.chargeDenied(descs, fit)
		if len(leases) > 0 {
			w.fail(descs, "a denied request has the leases %v", leases)
		}
		w.awaitReturns(ctx, descs)
		return nil
	}
	w.chargeAdmitted(descs, leases)
	w.compareRemaining(descs, reply)
	return nil
}

// decide returns whether a descriptor is within its limits, after the ones before it.
func (w *world) decide(a descriptor, charged map[*counter]int, received time.Time) (want verdict) {
	for _, l := range a.limited() {
		c, n := w.counter(a, l), a.number(l)
		c.advance(l, n, received)
		hits, _ := a.amount(l)
		switch {
		case a.lease: // a release, which is never denied
		case hits > 0:
			want = max(want, c.admits(l, n, charged[c], hits))
			charged[c] += hits
		case len(c.held) >= n.n, c.top > float64(n.burst): // a peek at a full counter
			want = max(want, unknown)
		}
	}
	return want
}

// chargeDenied charges hits of a denied request: those that count although they are denied, and
// those of other descriptors, unless these grant leases or all_or_nothing is set.
func (w *world) chargeDenied(descs []descriptor, fit []bool) {
	for i, a := range descs {
		for _, l := range a.limited() {
			hits, held := a.amount(l)
			if !a.lease && !held && (l.countDenied || fit[i] && !a.holds() && !a.allOrNothing) {
				w.counter(a, l).charge(l, a.number(l), hits)
			}
		}
	}
}

// chargeAdmitted charges the hits of an admitted request and records its leases.
func (w *world) chargeAdmitted(descs []descriptor, leases map[string]uint64) {
	var all []grantedLease
	times := map[*limit]int{} // number of descriptors to which a limit applied, with or without a lease
	for _, a := range descs {
		for _, l := range a.limits {
			if !a.lease {
				times[l]++
			}
		}
		for _, l := range a.limited() {
			hits, held := a.amount(l)
			switch {
			case a.lease:
			case !held:
				w.counter(a, l).charge(l, a.number(l), hits)
			default:
				name := l.name
				if times[l] > 1 {
					name = fmt.Sprint(name, ".", times[l])
				}
				if leases[name] == 0 {
					w.fail(descs, "no lease %s", name)
					continue
				}
				c := w.counter(a, l)
				c.held = append(c.held, hold{leases[name], hits})
				all = append(all, grantedLease{a, l, leases[name]})
				delete(leases, name)
			}
		}
	}
	for _, a := range descs { // the ledger does not track leases of candidates or of rules in shadow mode
		for _, name := range slices.Sorted(maps.Keys(leases)) {
			for _, l := range a.limits {
				if base, _, _ := strings.Cut(name, "."); base == l.name && (l.candidate || a.shadow) {
					all = append(all, grantedLease{a, l, leases[name]})
				}
			}
		}
	}
	if len(all) > 0 {
		w.running = append(w.running, all)
	}
}

// compareRemaining compares the remaining hits after an admitted request, if it has one descriptor
// of each counter.
func (w *world) compareRemaining(descs []descriptor, reply *rls.RateLimitResponse) {
	for i, a := range descs {
		limits := a.limited()
		twice := slices.ContainsFunc(descs[i+1:], func(b descriptor) bool { return b.node == a.node && b.tenant == a.tenant })
		if len(limits) == 0 || twice || a.lease || a.reserve() != nil && a.hits > 1 {
			continue
		}
		low, top := 1e18, 1e18
		for _, l := range limits {
			least, most := w.counter(a, l).remaining(l, a.number(l))
			low, top = min(low, max(0, least)), min(top, max(0, most))
		}
		if got := float64(reply.GetStatuses()[i].GetLimitRemaining()); got < low-1 || got > top || low == top && got != low {
			w.fail(descs, "descriptor %d has %v left, want %v to %v; %s", i, got, low, top, w.state(a))
		}
	}
}

// state returns the ledger's state of the counters of a descriptor.
func (w *world) state(a descriptor) string {
	var all []string
	for _, l := range a.limited() {
		c := w.counter(a, l)
		all = append(all, fmt.Sprintf("%s of %+v: %d leases with %d hits, %v to %v used", l.name, a.number(l), len(c.held), c.heldHits(), c.low, c.top))
	}
	return "the ledger: " + strings.Join(all, "; ")
}
