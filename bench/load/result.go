package load

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/proc"
)

// Result contains the measurements of one run.
type Result struct {
	Answered  int
	PerSecond float64
	OK        int
	OverLimit int
	Unknown   int
	Errors    int
	LastError string
	// P50 and P99 are quantiles of the latency in microseconds.
	P50, P99 float64

	Servers []Server
	// Idle is the servers' memory per connection in bytes; only set by [Idle].
	Idle float64
	// OtherCPU is the share of the machine's CPU time, 0 to 1, used by neither the generator nor
	// the servers. If it is large, the times are doubtful.
	OtherCPU float64
}

// Server is the resource usage of one server process.
type Server struct {
	// CPU is in microseconds per call, which equals CPU seconds per million.
	CPU float64
	// PeakRSS is the maximum of the memory in bytes since the process started.
	PeakRSS uint64
}

// sum returns the result of the workers' tallies.
func sum(workers []*worker, elapsed time.Duration) *Result {
	r := &Result{}
	var latency []time.Duration
	for _, w := range workers {
		r.OK += w.tally.ok
		r.OverLimit += w.tally.overLimit
		r.Unknown += w.tally.unknown
		r.Errors += w.tally.errors
		if w.tally.lastErr != nil {
			r.LastError = w.tally.lastErr.Error()
		}
		latency = append(latency, w.tally.latency...)
	}
	r.Answered = r.OK + r.OverLimit + r.Unknown
	r.PerSecond = float64(r.Answered) / elapsed.Seconds()
	slices.Sort(latency)
	r.P50 = quantile(latency, .5)
	r.P99 = quantile(latency, .99)
	return r
}

// quantile returns a quantile of sorted durations in microseconds, 0 if there are none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))].Nanoseconds()) / 1e3
}

// addUse adds the processes' resource usage in the measured time.
func (r *Result) addUse(u proc.Use) {
	calls := float64(max(r.Answered, 1))
	for _, p := range u.Processes {
		r.Servers = append(r.Servers, Server{CPU: p.CPU.Seconds() / calls * 1e6, PeakRSS: p.PeakRSS})
	}
	r.OtherCPU = u.Other
}
