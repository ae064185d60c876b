package load

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/proc"
)

// Result contains the measurements of one run.
type Result struct {
	Mode      string // closed or open
	Rate      float64
	Seconds   float64
	Answered  int
	PerSecond float64
	OK        int
	OverLimit int
	Unknown   int
	Errors    int
	LastError string
	Latency   Quantiles
	// SendLag is the delay with which the open loop sent its calls. It is part of Latency.
	SendLag *Quantiles

	Servers []Server
	// Idle is the servers' memory per connection in bytes; only set by [Idle].
	Idle float64
	// ClientCPU is the load generator's own CPU time, in microseconds per call.
	ClientCPU float64
	// OtherCPU is the share of the machine's CPU time, 0 to 1, used by neither the generator nor
	// the servers. If it is large, the times are doubtful.
	OtherCPU float64
}

// Server is the resource usage of one server process.
type Server struct {
	PID  int
	Name string
	// CPU is in microseconds per call, which equals CPU seconds per million.
	CPU   float64
	Cores float64
	// RSS is the memory in bytes at the end, PeakRSS the maximum since the process started.
	RSS     uint64
	PeakRSS uint64
}

// sum returns the result of the workers' tallies.
func sum(c *Config, workers []*worker, elapsed time.Duration) *Result {
	r := &Result{Mode: "closed", Rate: c.Rate, Seconds: elapsed.Seconds()}
	var latency, lag []time.Duration
	for _, w := range workers {
		r.OK += w.tally.ok
		r.OverLimit += w.tally.overLimit
		r.Unknown += w.tally.unknown
		r.Errors += w.tally.errors
		if w.tally.lastErr != nil {
			r.LastError = w.tally.lastErr.Error()
		}
		latency = append(latency, w.tally.latency...)
		lag = append(lag, w.tally.lag...)
	}
	r.Answered = r.OK + r.OverLimit + r.Unknown
	r.PerSecond = float64(r.Answered) / r.Seconds
	r.Latency = quantiles(latency)
	if c.Rate > 0 {
		r.Mode = "open"
		q := quantiles(lag)
		r.SendLag = &q
	}
	return r
}

// addUse adds the processes' resource usage in the measured time.
func (r *Result) addUse(u proc.Use) {
	calls := float64(max(r.Answered, 1))
	for _, p := range u.Processes {
		r.Servers = append(r.Servers, Server{
			PID: p.PID, Name: p.Name,
			CPU: p.CPU.Seconds() / calls * 1e6, Cores: p.CPU.Seconds() / r.Seconds,
			RSS: p.RSS, PeakRSS: p.PeakRSS,
		})
	}
	r.ClientCPU = u.Self.Seconds() / calls * 1e6
	r.OtherCPU = u.Other
}

// Print writes r as text.
func (r *Result) Print(w io.Writer) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	row := func(name string, q Quantiles) {
		line("  %-8s p50 %.0f  p90 %.0f  p99 %.0f  p99.9 %.0f  max %.0f µs", name, q.P50, q.P90, q.P99, q.P999, q.Max)
	}
	line("%s loop: %.0f requests/s (%d answered in %.2f s)", r.Mode, r.PerSecond, r.Answered, r.Seconds)
	line("  codes    OK %d, OVER_LIMIT %d, unknown %d, errors %d", r.OK, r.OverLimit, r.Unknown, r.Errors)
	if r.LastError != "" {
		line("  last error: %s", r.LastError)
	}
	row("latency", r.Latency)
	if r.SendLag != nil {
		row("send lag", *r.SendLag)
	}
	for _, s := range r.Servers {
		line("  server   %s (%d): %.2f µs of CPU per request, %.2f cores, RSS %.1f MiB, peak %.1f MiB",
			s.Name, s.PID, s.CPU, s.Cores, float64(s.RSS)/(1<<20), float64(s.PeakRSS)/(1<<20))
	}
	line("  client   %.2f µs of CPU per request; other work on the machine %.1f%%", r.ClientCPU, r.OtherCPU*100)
	return err
}
