package torture

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const (
	// Deadline is the default deadline of a call; it is also Envoy's.
	Deadline = 20 * time.Millisecond
	// Rate is the usual load, in calls per second.
	Rate = 2000
	// MinRate is the load, in answers per second, that a test must reach before and after its fault
	// to be significant.
	MinRate = 1000
)

// maxInFlight is the default of [LoadOptions.MaxInFlight].
const maxInFlight = 20_000

// CallFunc makes one call and returns its answer as a word. Answers and errors are counted by text,
// so the number of different texts must be small.
type CallFunc func(ctx context.Context) (answer string, err error)

type LoadOptions struct {
	// Rate is the number of calls per second.
	Rate int
	// Call makes a call. It is called concurrently.
	Call CallFunc
	// Deadline is the time limit of each call from its actual start. Optional; default [Deadline].
	Deadline time.Duration
	// MinRate is the rate that [Load.Run] waits for, in answers per second. Optional; default half
	// of Rate.
	MinRate float64
	// MaxInFlight limits the unfinished calls. Calls beyond it are not made, which reduces the
	// load. Optional; default 20,000, for short deadlines. With long deadlines, a lower limit
	// prevents a busy machine from accumulating more calls than it can answer.
	MaxInFlight int
}

// Load is an open loop of calls. It is not safe for concurrent use.
type Load struct {
	options  LoadOptions
	stop     chan struct{}
	paced    sync.WaitGroup
	calls    sync.WaitGroup
	inFlight atomic.Int64
	answers  atomic.Int64 // answers in all phases

	phase  atomic.Pointer[Phase]
	report Report
}

// StartLoad starts the load in the phase "before". The load runs until Stop or the end of the test.
func StartLoad(tb testing.TB, o LoadOptions) *Load {
	tb.Helper()
	if o.Deadline == 0 {
		o.Deadline = Deadline
	}
	if o.MinRate == 0 {
		o.MinRate = float64(o.Rate) / 2
	}
	o.Rate, o.MinRate = reducedIfRaced(o.Rate), reducedIfRaced(o.MinRate)
	if o.MaxInFlight == 0 {
		o.MaxInFlight = maxInFlight
	}
	l := &Load{options: o, stop: make(chan struct{})}
	l.Phase("before")
	l.paced.Go(l.pace)
	tb.Cleanup(func() {
		if !l.ended() {
			l.Stop(tb) // the test failed: the report may show the cause
		}
	})
	return l
}

// pace starts each call at its due time.
func (l *Load) pace() {
	start := time.Now()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		for due := l.due(start, n); time.Since(due) >= 0; due = l.due(start, n) {
			n++
			p := l.phase.Load()
			p.due.Add(1)
			if l.inFlight.Load() >= int64(l.options.MaxInFlight) {
				continue
			}
			l.inFlight.Add(1)
			p.flying.Add(1)
			l.calls.Go(func() {
				l.call(p, due)
				p.flying.Add(-1)
				l.inFlight.Add(-1)
			})
		}
	}
}

// due returns the due time of call n.
func (l *Load) due(start time.Time, n int) time.Time {
	return start.Add(time.Duration(float64(n) / float64(l.options.Rate) * float64(time.Second)))
}

func (l *Load) call(p *Phase, due time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), l.options.Deadline)
	defer cancel()
	answer, err := l.options.Call(ctx)
	if err == nil {
		l.answers.Add(1)
	}
	p.add(answer, err, time.Since(due))
}

// Phase starts a phase, which counts the calls that start from now on.
func (l *Load) Phase(name string) {
	now := time.Now()
	if n := len(l.report); n > 0 {
		l.report[n-1].ended = now
	}
	p := &Phase{Name: name, began: now, answers: make(map[string]int), errors: make(map[string]int)}
	l.report = append(l.report, p)
	l.phase.Store(p)
}

// AwaitEarlierPhases waits until all calls of earlier phases have ended, so that the following
// events affect only this phase.
func (l *Load) AwaitEarlierPhases(tb testing.TB) {
	tb.Helper()
	suite.Eventually(tb, "calls of earlier phases end", func() bool {
		for _, p := range l.report[:len(l.report)-1] {
			if p.flying.Load() > 0 {
				return false
			}
		}
		return true
	})
}

// InFlight returns the number of unfinished calls.
func (l *Load) InFlight() int { return int(l.inFlight.Load()) }

// Run lets the load continue for d.
//
// In the short tier it then waits until the phase has as many answers as [LoadOptions.MinRate]
// gives in d, which takes longer on a busy machine.
//
// In the long tier the rate itself must be reached. If it is not, Run starts a phase of the same
// name and tries again, for at most a quarter of [Patience].
func (l *Load) Run(tb testing.TB, d time.Duration) {
	tb.Helper()
	for deadline := time.Now().Add(Patience / 4); ; {
		select {
		case <-time.After(d):
		case <-tb.Context().Done():
			tb.Fatal(tb.Context().Err())
		}
		p := l.report[len(l.report)-1]
		if !Long() {
			least := int(l.options.MinRate * d.Seconds())
			suite.Eventually(tb, fmt.Sprintf("%d answers %s", least, p.Name), func() bool { return p.Answered() >= least })
			return
		}
		if float64(p.Answered())/time.Since(p.began).Seconds() >= l.options.MinRate || time.Now().After(deadline) {
			return
		}
		l.Phase(p.Name)
	}
}

// AwaitAnswers waits for the given number of further answers.
func (l *Load) AwaitAnswers(tb testing.TB, answers int) {
	tb.Helper()
	until := l.answers.Load() + int64(answers)
	suite.Eventually(tb, "the load continues", func() bool { return l.answers.Load() >= until })
}

// Stop stops the load, waits for unfinished calls, and prints and returns the report.
func (l *Load) Stop(tb testing.TB) Report {
	tb.Helper()
	l.finish()
	for _, p := range l.report {
		if p.due.Load() > 0 {
			tb.Log(p)
		}
	}
	return l.report
}

func (l *Load) ended() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

func (l *Load) finish() {
	if !l.ended() {
		close(l.stop)
		l.paced.Wait()
		l.report[len(l.report)-1].ended = time.Now()
	}
	l.calls.Wait()
}
