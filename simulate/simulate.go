package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// Options say what to simulate.
type Options struct {
	// Logs is what to read, at least one. They are read side by side and their requests
	// put in order of time.
	Logs []accesslog.Log
	// Rules are in force. Compile them with a random HashKey: what tells keys apart in the
	// report is made of it.
	Rules *descriptors.Set
	// RulesName is how people call the rules.
	RulesName string
	// Against are other rules to compare with, each compiled with the same HashKey. Optional.
	Against []Alternative
	// Domain is the one that is looked at. Optional where the log says it, or where Envoy
	// or the rules have only one.
	Domain string
	// Format is auto, json, otlp, csv, ltsv, w3c, requests, or a format string of Envoy. After
	// those with names of fields may stand NAME=FIELD, which says what a field is called. Default auto.
	Format string
	// Envoy tells which descriptors a line leads to. Optional.
	Envoy *envoyconfig.Config
	// Listener names one of several that ask. Optional.
	Listener string
	// Templates make the descriptors if neither the log nor Envoy says them. Optional.
	Templates []*Template
	// From and To bound the time of requests: from From until before To. Zero: no bound.
	From, To time.Time
	// Now is the time after which no request can be. It must be set.
	Now time.Time
	// Reorder is how much later than its turn a line may come. Default a minute.
	Reorder time.Duration
	// Timeout is how long Envoy waits for an answer: leaky buckets hold none longer.
	Timeout time.Duration
	// Replicas is how many services share the requests, each with counters of its own.
	// Default 1.
	Replicas int
	// Shard tells which replica, or Envoy, a request goes to. Optional: without, they take turns.
	Shard *accesslog.Expression
	// Envoys is how many Envoys divide the limits of rules with quota, beside the decisions of one
	// counter. Requests go to them as to replicas, of which there is one then. 0: not wanted.
	Envoys int
	// ShowValues shows the values of keys, which may tell of people.
	ShowValues bool
	// Memory bounds the counters of all rules, in bytes, again what is kept of their keys for the
	// report, and again the lines that wait to be put into order. If they do not fit, Run returns
	// an error. Default 4 GiB.
	Memory int64
	// Workers is how many goroutines read lines. Default one for each core.
	Workers int
	// Recommend is the share of its hits, in percent, for which each limit is to have room:
	// the report says the smallest number that has. 0: not wanted. The logs are read several
	// times then.
	Recommend float64
	// Progress is called now and then, by the goroutine that called Run. Optional.
	Progress func(Progress)
	// OnDecision is called with the time of each request in the order of deciding, what the log
	// says became of it, and whether the rules deny it. Optional.
	OnDecision func(at limiter.Time, recorded, denied bool)
}

// Alternative is rules to compare with.
type Alternative struct {
	// Name is how people call them.
	Name  string
	Rules *descriptors.Set
}

func (o *Options) setDefaults() {
	if o.Reorder == 0 {
		o.Reorder = time.Minute
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Format == "" {
		o.Format = "auto"
	}
	if o.Memory == 0 {
		o.Memory = min(defaultMemory, limiter.MaxBytes)
	}
	o.Replicas = max(1, o.Replicas)
}

// Run simulates. It returns an error if nothing could be simulated; lines that cannot be
// read are no error but in the report.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	o.setDefaults()
	r, err := newReadPlan(&o)
	if err != nil {
		return nil, err
	}
	run := &run{options: &o, from: math.MaxInt64, to: math.MinInt64, counts: newCounts()}
	if run.rules, err = newVariant(o.Rules, o.RulesName, &o); err != nil {
		return nil, err
	}
	for _, a := range o.Against {
		s, err := newVariant(a.Rules, a.Name, &o)
		if err != nil {
			return nil, err
		}
		run.alternatives = append(run.alternatives, s)
	}
	if o.Envoys > 0 {
		if run.divided, err = newDividedVariant(&o); err != nil {
			return nil, err
		}
	}
	run.variants = append([]*variant{run.rules}, run.alternatives...)
	if run.divided != nil {
		run.variants = append(run.variants, run.divided)
	}
	if err := run.readLogs(ctx, r, run.countBatch, run.decideRequest); err != nil {
		return nil, err
	}
	if err := run.finish(); err != nil {
		return nil, err
	}
	found := newReport(run, r)
	if o.Recommend > 0 {
		if err := run.recommend(ctx, r, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Progress is how far a run is.
type Progress struct {
	// Pass numbers the readings of the logs, from 0.
	Pass int
	// Bytes and Lines are those of this reading so far. Bytes are those of the files, which
	// may be gzipped.
	Bytes, Lines int64
}

// readLogs reads the logs. It calls tell, if not nil, with each batch, and use with each request
// in the order of their times.
func (r *run) readLogs(ctx context.Context, rd *readPlan, tell func(*stream, *batch), use func(queuedRequest)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	var bytes atomic.Int64
	lines := int64(0)
	p := startPipeline(ctx, r.options, rd, func(s *stream, b *batch) {
		if tell != nil {
			tell(s, b)
		}
		if lines += int64(b.Read); r.options.Progress != nil {
			r.options.Progress(Progress{r.pass, bytes.Load(), lines})
		}
	}, func(n int) { bytes.Add(int64(n)) })
	defer p.close()
	return p.eachRequest(ctx, use)
}

// run is what a simulation has come to. One goroutine uses it.
type run struct {
	options      *Options
	rules        *variant
	alternatives []*variant
	// divided is nil unless Envoys divide limits.
	divided *variant
	// variants are the rules and all that they are compared with.
	variants   []*variant
	record     record
	req        descriptors.Request
	roundRobin int
	// pass numbers the readings of the logs, from 0.
	pass int
	// stop ends a reading with an error.
	stop context.CancelCauseFunc
	// multiCall says that some request made several calls, one after another.
	multiCall bool

	counts

	// put counts the requests that were put into order, and putBytes what they ask.
	queued, queuedBytes uint64
	// requests counts the lines that asked something, as they are decided.
	requests uint64
	from, to int64
	// recorded counts the requests of which the log says what became of them, refused those
	// of them that were denied, and agree those on which the rules agree.
	recorded, recordedDenied, agreed uint64
}

// countBatch takes in what is counted of a chunk.
func (r *run) countBatch(s *stream, b *batch) {
	r.add(&b.counts, s.name, s.rows)
	r.queued += uint64(len(b.requests) - b.late)
	r.queuedBytes += uint64(len(b.arena))
	err := r.checkMemory()
	if waiting := r.queued - r.requests; waiting*(r.queuedBytes/max(1, r.queued)+queuedRequestBytes) > uint64(r.options.Memory) {
		err = fmt.Errorf("%d lines of --reorder %v wait to be put into order, which do not fit into memory: lower --reorder, or raise --counter-memory", waiting, r.options.Reorder)
	}
	if err != nil {
		r.stop(err)
	}
}

// leaseBytes is what a request takes that has not ended.
const leaseBytes = 128

// queuedRequestBytes is what a request that waits takes beside what it asks: an element of a batch and
// one of a slot.
const queuedRequestBytes = 64

// checkMemory returns an error if what is kept does not fit into memory.
func (r *run) checkMemory() error {
	kept := int64(0)
	for _, s := range r.variants {
		if err := checkEvicted(s.tables); err != nil {
			return err
		}
		kept += s.tally.memoryBytes() + int64(len(s.leases))*leaseBytes
		if s.division != nil {
			kept += int64(s.fleet.Buckets()) * bucketBytes
		}
	}
	if kept > r.options.Memory {
		return fmt.Errorf("what is kept of %d keys does not fit into memory (%d requests have not ended): raise --counter-memory, or look at a shorter time with --from and --to",
			r.rules.tally.keys.n, len(r.rules.leases))
	}
	return nil
}

// decideRequest decides a request.
func (r *run) decideRequest(w queuedRequest) {
	r.record.read(w.batch.arena[w.offset:])
	r.requests++
	r.from, r.to = min(r.from, w.at), max(r.to, w.at)
	at := limiter.Time(w.at)
	r.multiCall = r.multiCall || r.record.calls > 1
	to := r.options.target(&r.record, &r.roundRobin)
	replica := to
	if r.divided != nil { // one service divides
		replica, r.divided.envoy = 0, to
	}
	rest := r.record
	denied := r.decide(r.rules, at, replica)
	if r.record.recorded != accesslog.NotRecorded {
		r.recorded++
		was := r.record.recorded == accesslog.Denied
		if was {
			r.recordedDenied++
		}
		if was == denied {
			r.agreed++
		}
	}
	for _, other := range r.variants[1:] {
		r.record = rest
		switch against := r.decide(other, at, replica); {
		case against && !denied:
			other.onlyDenied++
			other.tally.countDenial(other.decidedPlan(), replica)
		case denied && !against:
			other.onlyAdmitted++
		}
	}
	if r.options.OnDecision != nil {
		r.options.OnDecision(at, r.record.recorded == accesslog.Denied, denied)
	}
}

// decide decides the calls of the record one after another: one that is denied is the
// last.
func (r *run) decide(s *variant, at limiter.Time, replica int) (denied bool) {
	s.tally.setTime(at)
	for range r.record.calls {
		r.record.nextCall(&r.req)
		if s.decide(at, r.record.duration, &r.req, replica) {
			s.denied++
			return true
		}
	}
	return false
}

// target returns where a request goes; turn counts those that take turns.
func (o *Options) target(r *record, turn *int) int {
	n := max(o.Replicas, o.Envoys)
	if r.shard != noShard {
		return int(r.shard) % n
	}
	*turn++
	return *turn % n
}

func (r *run) finish() error {
	for _, s := range r.variants {
		s.tally.finish()
	}
	if err := r.checkMemory(); err != nil {
		return err
	}
	switch {
	case r.Read == 0:
		return accesslog.NoLinesError(r.options.Logs)
	case r.requests > 0:
		return nil
	case r.NoRequest == r.Read:
		return errors.New("no line is about a request")
	case r.Bad > 0 && r.Bad == r.Read:
		return fmt.Errorf("no line can be read:\n%w", r.firstBadLines())
	case r.computed == 0 && len(r.unknown) > 0:
		return fmt.Errorf("no descriptor can be computed:\n%s", strings.Join(r.unknownReasons(), "\n"))
	case r.outsideRange+r.NoRequest == r.Read:
		return fmt.Errorf("all requests are of another time than --from and --to say: from %s to %s", formatTime(r.first), formatTime(r.last))
	default:
		return errors.New("no line leads to a descriptor, so that nothing would be asked")
	}
}

func formatTime(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// firstBadLines returns the first lines that cannot be read as an error.
func (r *run) firstBadLines() error {
	var all []error
	for _, b := range r.FirstBad {
		all = append(all, errors.New(b.String()))
	}
	return errors.Join(all...)
}

// unknownReasons returns why descriptors are unknown, the commonest first.
func (r *run) unknownReasons() []string {
	var all []string
	for _, u := range sortUnknown(r.unknown) {
		all = append(all, fmt.Sprintf("  %d unknown: %s", u.Count, u.Reason))
	}
	return all
}

func sortUnknown(m map[string]int) []report.Unknown {
	all := []report.Unknown{}
	for why, n := range m {
		all = append(all, report.Unknown{Count: n, Reason: why})
	}
	slices.SortFunc(all, func(a, b report.Unknown) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
