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
// its time, and the replica knows the reply after a round trip. Package store makes the decisions that
// need no store.
//
// The model is simpler than a real store: no fault occurs, all clocks are equal, and commands of
// leases that are returned are not counted.
type storeModel struct {
	table    *limiter.Table
	trip     limiter.Time
	replicas []replica
	// replica and limits are those of the current request.
	replica int
	limits  []*descriptors.Limit
	events  eventQueue
	ids     counterIDs
	// uses has an element for each of [tally.limits]. total is the use by all requests.
	uses  []report.StoreUse
	total report.StoreUse
}

type replica struct {
	*store.SimulatedReplica
	sender
}

func newStoreModel(s *variant, o *Options, blocks bool) (*storeModel, error) {
	m := &storeModel{
		table: s.tables[0], trip: limiter.Time(o.RoundTrip), replicas: make([]replica, o.Replicas),
		uses: make([]report.StoreUse, len(s.tally.limits)), ids: counterIDs{byHash: map[identity.ID]identity.ID{}},
	}
	for i := range m.replicas {
		// Two variants have mirrors. If one is full, its replica asks the store more often.
		mirror, err := limiter.New(limiter.Options{Bytes: o.tableBytes(o.memoryShares() * 2 * o.Replicas)})
		if err != nil {
			return nil, err
		}
		m.replicas[i].SimulatedReplica = store.NewSimulatedReplica(store.SimulatedStore{
			Table: m.table, Trip: o.RoundTrip, Replicas: o.Replicas, Blocks: blocks, Schedule: m.events.add,
			Send: func(now limiter.Time, description any) limiter.Time { return m.sendForBlock(now, i, description) },
		}, mirror)
	}
	return m, nil
}

// DescribeCounter implements [limiter.Describer] for the current request. It returns the counts of a
// charge's limit.
func (m *storeModel) DescribeCounter(charge int) any { return m.use(m.limits[charge]) }

// sendForBlock sends a command of a replica about blocks of a counter with the given description. It
// returns the time at which the reply arrives.
func (m *storeModel) sendForBlock(now limiter.Time, replica int, description any) limiter.Time {
	reply, commands := m.replicas[replica].send(now, m.trip, 0)
	if l, ok := description.(*report.StoreUse); ok {
		l.Commands += float64(commands)
	}
	m.total.Commands += float64(commands)
	return reply
}

// newBlocksVariant returns the variant in which replicas have blocks.
func newBlocksVariant(o *Options) (*variant, error) {
	switch {
	case o.Recommend > 0:
		return nil, errors.New("--store-blocks and --recommend exclude each other; recommendations are for one counter, so they need no store")
	case !slices.ContainsFunc(o.Rules.Limits, func(l *descriptors.Limit) bool {
		return !l.Rule.Unlimited && store.UsesBlocks(&limiter.Charge{Policy: &l.Policy, Hits: 1})
	}):
		return nil, errors.New("--store-blocks: no limit of these rules can have blocks; docs/blocks.md lists those that can")
	}
	s, err := newVariant(o.Rules, "blocks", o)
	if err == nil {
		s.store, err = newStoreModel(s, o, true)
	}
	return s, err
}

// memory returns the approximate size of the model in bytes.
func (m *storeModel) memory() (n int64) {
	const replicaBytes, hotBytes, eventBytes = 1 << 20, 2 << 10, 1 << 10
	for _, r := range m.replicas {
		n += replicaBytes + int64(r.Hot())*hotBytes
	}
	return n + int64(len(m.events.heap))*eventBytes + int64(len(m.ids.byHash))*idBytes
}

// decide decides the charges of a plan.
func (m *storeModel) decide(at limiter.Time, plan *descriptors.Plan) {
	m.events.runUntil(at)
	b, r := &plan.Batch, &m.replicas[m.replica]
	if len(b.Charges) == 0 {
		m.table.Decide(at, b)
		return
	}
	m.ids.replace(b)
	defer m.ids.restore(b)
	m.limits, b.Describer = plan.Limits, m
	if r.Decide(at, b) {
		m.count(plan, 0, false)
		return
	}
	m.table.Decide(at, b)
	native := 0
	for i := range b.Charges {
		n := script.NativeCommands(&b.Charges[i])
		if native += n; n == 0 {
			native = 0
			break
		}
	}
	reply, commands := r.send(at, m.trip, native)
	r.Decided(at, reply, b)
	m.count(plan, commands, true)
}

// finish runs all events. In the end no counter is hot.
func (m *storeModel) finish() {
	for len(m.events.heap) > 0 {
		m.events.runUntil(m.events.heap[0].at)
	}
}

// count counts a decided request.
func (m *storeModel) count(plan *descriptors.Plan, commands int, waits bool) {
	b := &plan.Batch
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
// arrive before the next message is sent are all in that message, and share the run of a script.
type sender struct {
	sent [store.MaxInFlight]limiter.Time // when the latest messages are sent
	n    int                             // number of messages
	// script is true if the newest message runs a script.
	script bool
}

// send sends a charge, by the given number of native commands or by a script. It returns the time at
// which the reply arrives, and the number of additional commands.
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

// last returns the time at which the nth last message is sent, 0 if there is none.
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
