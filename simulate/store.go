package simulate

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate/report"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A storeModel is a model of replicas with one store. It counts the commands that they send and the
// requests that wait for a reply. The table of the variant is the store: it decides a request at
// its time, and the replica knows the reply after a round trip.
//
// The model is simpler than package store: no fault occurs, all clocks are equal, and a request
// under a penalty always waits. Commands of leases that are returned are not counted. Blocks are
// those of package store.
type storeModel struct {
	table    *limiter.Table
	trip     limiter.Time
	replicas []sender
	// replica is that of the current request.
	replica int
	// denied has the time of the last reply that left a counter full, by [replicaID].
	denied map[identity.ID]limiter.Time
	// uses are those of the limits, like [tally.limits], and total that of all requests.
	uses  []report.StoreUse
	total report.StoreUse
	// blocks is nil without blocks.
	blocks *blockModel
}

func newStoreModel(s *variant, o *Options, blocks bool) *storeModel {
	m := &storeModel{
		table: s.tables[0], trip: limiter.Time(o.RoundTrip), replicas: make([]sender, o.Replicas),
		denied: map[identity.ID]limiter.Time{}, uses: make([]report.StoreUse, len(s.tally.limits)),
	}
	if blocks {
		m.blocks = newBlockModel(m, len(m.replicas))
	}
	return m
}

// newBlocksVariant returns the variant in which replicas have blocks.
func newBlocksVariant(o *Options) (*variant, error) {
	switch {
	case o.Envoys > 0:
		return nil, errors.New("--store-blocks and --rlqs exclude each other; simulate them separately")
	case o.Recommend > 0:
		return nil, errors.New("--store-blocks and --recommend exclude each other; recommendations are for one counter, so they need no store")
	case !slices.ContainsFunc(o.Rules.Limits, func(l *descriptors.Limit) bool {
		return !l.Rule.Unlimited && store.UsesBlocks(&limiter.Charge{Policy: &l.Policy, Hits: 1})
	}):
		return nil, errors.New("--store-blocks: no limit can have blocks; docs/store.md lists the algorithms and fields that can")
	}
	s, err := newVariant(o.Rules, "blocks", o)
	if err == nil {
		s.store = newStoreModel(s, o, true)
	}
	return s, err
}

// memory returns the approximate size of the model in bytes.
func (m *storeModel) memory() int64 {
	const denialBytes = 64
	n := int64(len(m.denied)) * denialBytes
	if m.blocks != nil {
		n += m.blocks.memory()
	}
	return n
}

// decide decides the charges of a plan.
func (m *storeModel) decide(at limiter.Time, plan *descriptors.Plan) {
	b, hot := &plan.Batch, false
	if m.blocks != nil {
		var done bool
		if done, hot = m.blocks.decide(at, plan); done {
			m.count(plan, 0, false)
			return
		}
	}
	m.table.Decide(at, b)
	if len(b.Charges) == 0 || !hot && m.deniedFromMemory(at, b) {
		m.count(plan, 0, false)
		return
	}
	native := 0
	for i := range b.Charges {
		n := script.NativeCommands(&b.Charges[i])
		if native += n; n == 0 {
			native = 0
			break
		}
	}
	reply, commands := m.replicas[m.replica].send(at, m.trip, native)
	for i := range b.Charges {
		m.learn(at, reply, &b.Charges[i], &b.Decisions[i])
	}
	if m.blocks != nil {
		m.blocks.learn(at, reply, plan)
	}
	m.count(plan, commands, true)
}

// deniedFromMemory reports whether the replica knew that the store would deny b, as
// store.denyFromCache does. The table has decided b.
func (m *storeModel) deniedFromMemory(at limiter.Time, b *limiter.Batch) bool {
	denied := false // the current group is denied
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Refund || c.Hits == 0 || c.Mode == limiter.Quota || c.Penalises() ||
			c.Policy.UsesLeases() || c.Policy.CountRefused || c.Policy.Algorithm == limiter.SlidingLog {
			return false
		}
		if i > 0 && c.Group != b.Charges[i-1].Group {
			if !denied {
				return false
			}
			denied = false
		}
		denied = denied || c.Mode == limiter.Enforce && b.Decisions[i].Over && m.remembers(at, c)
	}
	return denied
}

// remembers reports whether the replica has learned within [store.CacheFor] that a counter is full.
func (m *storeModel) remembers(at limiter.Time, c *limiter.Charge) bool {
	since, ok := m.denied[replicaID(c.ID, m.replica)]
	return ok && since <= at && time.Duration(at-since) < store.CacheFor
}

// learn records the state of a counter in a reply.
func (m *storeModel) learn(at, reply limiter.Time, c *limiter.Charge, d *limiter.Decision) {
	if c.Refund || c.Hits == 0 {
		return
	}
	if (d.Over || d.Remaining == 0) && !c.Policy.CountRefused && !c.Policy.UsesLeases() {
		id := replicaID(c.ID, m.replica)
		switch since := m.denied[id]; {
		case since > at: // an earlier reply
		case at-since < limiter.Time(store.CacheFor+store.RecheckAfter):
			m.denied[id] = at // the denial is also used before the reply
		default:
			m.denied[id] = reply
		}
	}
}

// count counts a decided request.
func (m *storeModel) count(plan *descriptors.Plan, commands int, waits bool) {
	b := &plan.Batch
	if len(b.Charges) == 0 {
		return
	}
	one := report.StoreUse{Requests: 1, Commands: float64(commands)}
	if waits {
		one.Waiting = 1
	}
	for i := range b.Charges {
		l := report.StoreUse{Requests: 1, Commands: one.Commands / float64(len(b.Charges)), Waiting: one.Waiting}
		if d := &b.Decisions[i]; d.Over && d.Denied && b.Charges[i].Mode.Denies() {
			l.Denied, one.Denied = 1, 1
		}
		m.use(plan.Limits[i]).Add(l)
	}
	m.total.Add(one)
}

// countMore counts a denied request that is admitted without blocks, for the first limit that denies
// it.
func (m *storeModel) countMore(plan *descriptors.Plan) {
	m.total.More++
	for i, d := range plan.Batch.Decisions {
		if d.Over && d.Denied && plan.Batch.Charges[i].Mode.Denies() {
			m.use(plan.Limits[i]).More++
			return
		}
	}
}

// use returns the counts of a limit.
func (m *storeModel) use(l *descriptors.Limit) *report.StoreUse {
	if l.Index < 0 {
		return &m.uses[len(m.uses)-1]
	}
	return &m.uses[l.Index]
}

// A sender is the connection of a replica, with a bounded number of messages in flight. Requests that
// come meanwhile are sent together, and share the run of a script.
type sender struct {
	sent [store.MaxInFlight]limiter.Time // when the latest messages are sent
	n    int                             // number of messages
	// script is true if the newest message runs a script.
	script bool
}

// send sends a charge, by the given number of native commands or by a script. It returns when the
// reply arrives and the number of additional commands.
func (s *sender) send(at, trip limiter.Time, native int) (reply limiter.Time, commands int) {
	if at >= s.last(1) {
		soon := max(s.last(1)+limiter.Time(store.TripPart), s.last(store.MostInFlight(time.Duration(trip)))+trip)
		s.sent[s.n%len(s.sent)] = max(at, min(s.last(store.MinInFlight)+trip, soon))
		s.n++
		s.script = false
	}
	if commands = native; native == 0 && !s.script {
		s.script, commands = true, 1
	}
	return s.last(1) + trip, commands
}

// last returns when the nth last message is sent.
func (s *sender) last(n int) limiter.Time {
	if n > s.n {
		return 0
	}
	return s.sent[(s.n-n)%len(s.sent)]
}

// newStoreReport compares the store's use with and without blocks.
func (r *run) newStoreReport() *report.Store {
	off, auto := r.rules.store, r.blocks.store
	out := &report.Store{
		RoundTrip: r.options.RoundTrip.Seconds(), Fewer: r.blocks.onlyAdmitted,
		Total: report.StoreUses{Off: off.total, Auto: auto.total}, Limits: []report.StoreLimit{},
	}
	for _, i := range r.rules.tally.active {
		l := r.rules.tally.reportLimit(i)
		out.Limits = append(out.Limits, report.StoreLimit{
			Rule: l.Rule, Name: l.Name, Limit: l.Limit, Place: l.Place, StoreUses: report.StoreUses{Off: off.uses[i], Auto: auto.uses[i]},
		})
	}
	return out
}
