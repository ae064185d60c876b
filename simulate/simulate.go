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

// Options configure a simulation.
type Options struct {
	// Logs are the logs, at least one. They are read concurrently and merged by time.
	Logs []accesslog.Log
	// Rules decide the requests. Compile them with a random HashKey, because the hashes of keys in
	// the report derive from it.
	Rules *descriptors.Set
	// RulesName is the name of the rules in the report.
	RulesName string
	// Against are other rules to compare with, compiled with the same HashKey. Optional.
	Against []Alternative
	// Domain selects a domain. Optional if the log names it, or if Envoy or the rules have only
	// one.
	Domain string
	// Format is the format of the logs; see [accesslog.Recognise]. Default auto.
	Format string
	// Envoy determines the descriptors of a request. Optional.
	Envoy *envoyconfig.Config
	// Listener selects one of several listeners with rate limit filters. Optional.
	Listener string
	// Templates determine the descriptors if neither the log nor Envoy does. Optional.
	Templates []*Template
	// From (inclusive) and To (exclusive) bound the times of requests. Zero means no bound.
	From, To time.Time
	// Now is the maximum time of a request. Required.
	Now time.Time
	// Reorder is the maximum delay of a line relative to later ones. Default one minute.
	Reorder time.Duration
	// Timeout is Envoy's timeout for replies: the maximum delay by a leaky bucket.
	Timeout time.Duration
	// ShowValues shows the values of keys, which may be personal data.
	ShowValues bool
	// Memory bounds, in bytes each, the counters of all rules, the statistics of their keys, and
	// the requests that wait to be sorted. Run returns an error if it is exceeded. Default 4 GiB.
	Memory int64
	// Workers is the number of goroutines that parse lines. Default one per core.
	Workers int
	// Recommend is a percentage of hits. For each limit, the report recommends the smallest number
	// that admits it. The logs are then read several times. 0 disables it.
	Recommend float64
	// Progress is called periodically by Run's goroutine. Optional.
	Progress func(Progress)
	// OnDecision is called with each request in decision order: its time, whether the log records a
	// denial, and whether the rules deny it. Optional.
	OnDecision func(at limiter.Time, recorded, denied bool)
}

// Alternative is a set of rules to compare with.
type Alternative struct {
	// Name is the name in the report.
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
}

// Run simulates. It returns an error if no request could be simulated. Unreadable lines are counted
// in the report.
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
	run.variants = append([]*variant{run.rules}, run.alternatives...)
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

// Progress is the progress of a run.
type Progress struct {
	// Pass numbers the passes over the logs, from 0.
	Pass int
	// Bytes and Lines count those of this pass. Bytes count the files' bytes, which may be
	// compressed.
	Bytes, Lines int64
}

// readLogs reads the logs once. It calls onBatch, if not nil, with each batch, and onRequest with
// each request in order of time.
func (r *run) readLogs(
	ctx context.Context, rd *readPlan, onBatch func(*stream, *batch), onRequest func(queuedRequest),
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	var bytes atomic.Int64
	lines := int64(0)
	p := startPipeline(ctx, r.options, rd, func(s *stream, b *batch) {
		if onBatch != nil {
			onBatch(s, b)
		}
		lines += int64(b.Read)
		if r.options.Progress != nil {
			r.options.Progress(Progress{r.pass, bytes.Load(), lines})
		}
	}, func(n int) { bytes.Add(int64(n)) })
	defer p.close()
	return p.eachRequest(ctx, onRequest)
}

// run is the state of a simulation. It is not safe for concurrent use.
type run struct {
	options      *Options
	rules        *variant
	alternatives []*variant
	// variants are rules and alternatives.
	variants []*variant
	record   record
	req      descriptors.Request
	// pass numbers the passes over the logs, from 0.
	pass int
	// stop cancels a pass with an error.
	stop context.CancelCauseFunc
	// multiCall reports that some request made several calls in sequence.
	multiCall bool

	counts

	// ahead is the line because of which the first request came too late, or nil.
	ahead *report.AheadLine
	// queued counts the requests to be sorted, and queuedBytes their records' bytes.
	queued, queuedBytes uint64
	// requests counts the decided requests.
	requests uint64
	from, to int64
	// recorded counts the requests with a recorded outcome, recordedDenied the denied ones, and
	// agreed those with the same decision by the rules.
	recorded, recordedDenied, agreed uint64
}

// countBatch adds the counts of a batch and checks the memory bound.
func (r *run) countBatch(s *stream, b *batch) {
	r.add(&b.counts, s.name, s.rows)
	r.ahead = cmp.Or(r.ahead, s.ahead)
	r.queued += uint64(len(b.requests) - b.late)
	r.queuedBytes += uint64(len(b.arena))
	err := r.checkMemory()
	if waiting := r.queued - r.requests; waiting*(r.queuedBytes/max(1, r.queued)+
		queuedRequestBytes) > uint64(r.options.Memory) {
		err = fmt.Errorf("%d requests within --reorder %v do not fit into memory; reduce --reorder, or raise --counter-memory", waiting, r.options.Reorder)
	}
	if err != nil {
		r.stop(err)
	}
}

// leaseBytes is the memory of a lease.
const leaseBytes = 128

// queuedRequestBytes is the memory of a request to be sorted in addition to its record: an element
// of a batch and one of a slot.
const queuedRequestBytes = 64

// checkMemory returns an error if counters were evicted or the statistics exceed the memory bound.
func (r *run) checkMemory() error {
	kept := int64(0)
	for _, s := range r.variants {
		if err := checkEvicted(s.table); err != nil {
			return err
		}
		kept += s.tally.memoryBytes() + int64(len(s.leases))*leaseBytes
	}
	if kept > r.options.Memory {
		return fmt.Errorf("the statistics of %d keys do not fit into memory (%d requests have not ended); raise --counter-memory, or shorten the time range with --from and --to",
			r.rules.tally.keys.n, len(r.rules.leases))
	}
	return nil
}

func (r *run) decideRequest(w queuedRequest) {
	r.record.read(w.batch.arena[w.offset:])
	r.requests++
	r.from = min(r.from, w.at)
	r.to = max(r.to, w.at)
	at := limiter.Time(w.at)
	r.multiCall = r.multiCall || r.record.calls > 1
	rest := r.record
	denied := r.decide(r.rules, at)
	if r.record.recorded != accesslog.NotRecorded {
		r.recorded++
		wasDenied := r.record.recorded == accesslog.Denied
		if wasDenied {
			r.recordedDenied++
		}
		if wasDenied == denied {
			r.agreed++
		}
	}
	for _, other := range r.variants[1:] {
		r.record = rest
		switch deniedByOther := r.decide(other, at); {
		case deniedByOther && !denied:
			other.onlyDenied++
		case denied && !deniedByOther:
			other.onlyAdmitted++
		}
	}
	if r.options.OnDecision != nil {
		r.options.OnDecision(at, r.record.recorded == accesslog.Denied, denied)
	}
}

// decide decides the calls of the record in sequence, up to the first denied one.
func (r *run) decide(s *variant, at limiter.Time) (denied bool) {
	s.tally.setTime(at)
	for range r.record.calls {
		r.record.nextCall(&r.req)
		if s.decide(at, r.record.duration, &r.req) {
			s.denied++
			return true
		}
	}
	return false
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
		return fmt.Errorf("all requests are outside --from and --to; the log spans %s to %s", formatTime(r.first),
			formatTime(r.last))
	default:
		return errors.New("no line results in a descriptor, so Envoy would not query the service")
	}
}

func formatTime(at int64) string { return time.Unix(0, at).Format(time.RFC3339) }

func (r *run) firstBadLines() error {
	var all []error
	for _, b := range r.FirstBad {
		all = append(all, errors.New(b.String()))
	}
	return errors.Join(all...)
}

// unknownReasons lists the reasons for unknown descriptors, the most frequent first.
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
