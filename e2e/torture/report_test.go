package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Phase counts answers and errors of the calls that started in one part of a test.
type Phase struct {
	Name string

	began, ended time.Time
	due, flying  atomic.Int64

	mu        sync.Mutex
	answers   map[string]int // number by answer
	errors    map[string]int // number by text
	latencies []time.Duration
}

func (p *Phase) add(answer string, err error, latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errors[err.Error()]++
		return
	}
	p.answers[answer]++
	p.latencies = append(p.latencies, latency)
}

// Answered returns the number of answered calls.
func (p *Phase) Answered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.latencies)
}

// Answers returns the number of calls by answer.
func (p *Phase) Answers() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.answers)
}

// Errors returns the number of failed calls by error.
func (p *Phase) Errors() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.errors)
}

// Failed returns the number of failed calls.
func (p *Phase) Failed() (n int) {
	for _, count := range p.Errors() {
		n += count
	}
	return n
}

// Rate returns the load reached, in answers per second.
func (p *Phase) Rate() float64 {
	return float64(p.Answered()) / p.ended.Sub(p.began).Seconds()
}

// Late returns the share of calls without an answer within d of their due time.
func (p *Phase) Late(d time.Duration) float64 {
	failed := p.Failed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latencies)+failed == 0 {
		return 0
	}
	late := failed
	for _, latency := range p.latencies {
		if latency > d {
			late++
		}
	}
	return float64(late) / float64(len(p.latencies)+failed)
}

// quantile returns a quantile of the time from due time to answer, of answered calls.
func (p *Phase) quantile(q float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latencies) == 0 {
		return 0
	}
	slices.Sort(p.latencies)
	return p.latencies[int(q*float64(len(p.latencies)-1))]
}

// String returns a summary in one line.
func (p *Phase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %.0f answers/s of %.0f due, %.2f%% later than %v, p50 %v p99 %v max %v",
		p.Name, p.Rate(), float64(p.due.Load())/p.ended.Sub(p.began).Seconds(), 100*p.Late(Deadline), Deadline,
		p.quantile(0.5).Round(10*time.Microsecond), p.quantile(0.99).Round(10*time.Microsecond), p.quantile(1).Round(10*time.Microsecond))
	for _, counts := range []map[string]int{p.Answers(), p.Errors()} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, ", %s %d", what, counts[what])
		}
	}
	return b.String()
}

// Report contains the phases of a load in order.
type Report []*Phase

// Phase returns the last phase with the given name, or fails the test.
func (r Report) Phase(tb testing.TB, name string) *Phase {
	tb.Helper()
	for _, p := range slices.Backward(r) {
		if p.Name == name {
			return p
		}
	}
	tb.Fatalf("no phase %q", name)
	return nil
}

// AtLeast fails the test if the last phase of a name did not reach the given rate in answers per
// second, because a test without load is not significant. In the short tier a phase only needs
// answers, because the rate depends on the machine; [Load.Run] and [Load.AwaitAnswers] wait for
// enough of them.
func (r Report) AtLeast(tb testing.TB, rate float64, phases ...string) {
	tb.Helper()
	rate = reducedIfRaced(rate)
	for _, name := range phases {
		switch p := r.Phase(tb, name); {
		case p.Answered() == 0:
			tb.Errorf("%s: no answers", name)
		case Long() && p.Rate() < rate:
			tb.Errorf("%s: %.0f answers/s, want a load of at least %.0f", name, p.Rate(), rate)
		}
	}
}

// Errors fails the test if calls in phases of the given name had errors that are not allowed.
// Exceeded deadlines are only printed.
func (r Report) Errors(tb testing.TB, name string, allowed ...string) {
	tb.Helper()
	r.Phase(tb, name) // fails if there is none
	for _, p := range r {
		if p.Name != name {
			continue
		}
		for what, n := range p.Errors() {
			if what != "DeadlineExceeded" && !slices.Contains(allowed, what) {
				tb.Errorf("%s: %d calls failed: %s", name, n, what)
			}
		}
	}
}

// NoErrors is [Report.Errors] without allowed errors.
func (r Report) NoErrors(tb testing.TB, phases ...string) {
	tb.Helper()
	for _, name := range phases {
		r.Errors(tb, name)
	}
}
