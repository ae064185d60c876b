package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

// compare measures a comparison and prints its tables.
func compareServices(ctx context.Context, w *testbed, o *options, q *comparison, page *page) error {
	var services []*service
	for _, name := range q.services {
		if s := w.services[name]; s != nil {
			services = append(services, s)
		}
	}
	if w.envoy == "" {
		q.cases = slices.DeleteFunc(q.cases, func(c benchCase) bool { return c.envoy })
	}
	if len(q.cases) == 0 || len(services) == 0 {
		return nil // the page lists it as missing
	}
	var found measurements
	var failed error
	for _, c := range q.cases {
		results, err := measureCase(ctx, w, o, &c, services)
		if err != nil {
			failed = fmt.Errorf("case %s: %w", c.name, err)
			break
		}
		found = append(found, results)
	}
	// After an interruption print the cases that were measured.
	if q.cases = q.cases[:len(found)]; len(found) > 0 {
		page.printComparison(q, services, found)
	}
	return failed
}

// measureCase returns each service's figures of each round. It restarts the services, so that their
// memory is that of this case.
func measureCase(ctx context.Context, w *testbed, o *options, c *benchCase, services []*service) ([][]figures, error) {
	defer func() {
		for _, s := range services {
			s.kill()
		}
	}()
	results := make([][]figures, len(services))
	for round := range o.rounds {
		for i, s := range services {
			fmt.Fprintf(w.progress, "%s: round %d of %d, %s\n", c.name, round+1, o.rounds, s.name)
			// The memory of an earlier round's connections would be reused.
			if round == 0 || c.idle {
				s.kill()
				if err := s.launch(ctx, w, c); err != nil {
					return nil, err
				}
				if err := fill(ctx, c, s); err != nil {
					return nil, err
				}
				if s.warmup > 0 {
					config := c.config(s)
					config.Duration = s.warmup
					if _, err := measure(ctx, s, config, load.Run); err != nil {
						return nil, err
					}
				}
			}
			config := c.config(s)
			config.Rate = c.rate
			config.Duration = o.duration
			config.Warmup = o.warmup
			run := load.Run
			if c.idle {
				run = load.Idle
			}
			before, err := s.commands(ctx)
			if err != nil {
				return nil, err
			}
			r, err := measure(ctx, s, config, run)
			if err != nil {
				return nil, err
			}
			after, err := s.commands(ctx)
			if err != nil {
				return nil, err
			}
			if denied := r.OverLimit > r.OK; denied != (c.denied && s.limits) {
				return nil, fmt.Errorf("%s: %d responses are OK and %d OVER_LIMIT, which does not fit this case", s.name, r.OK, r.OverLimit)
			}
			f := s.figures(r)
			f.commands = (after - before) / float64(r.Answered) * float64(config.Duration) / float64(config.Duration+config.Warmup)
			results[i] = append(results[i], f)
		}
	}
	return results, nil
}

// fill creates the counters of a case, in the first replica: replicas with a store share them.
func fill(ctx context.Context, c *benchCase, s *service) error {
	if !c.fill {
		return nil
	}
	config := c.config(s)
	config.Addrs = s.addrs[:1]
	config.HTTP = false
	config.Fill = true
	config.Connections = 2
	config.InFlight = 64
	_, err := measure(ctx, s, config, load.Run)
	return err
}

// measure measures the load c on a service once.
func measure(ctx context.Context, s *service, c load.Config, run func(context.Context, load.Config) (*load.Result, error)) (*load.Result, error) {
	r, err := run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if r.Errors > 0 || r.Unknown > 0 || r.Answered == 0 {
		return nil, fmt.Errorf("%s: %d responses, %d errors, %d unknown codes: %s", s.name, r.Answered, r.Errors, r.Unknown, r.LastError)
	}
	return r, nil
}

// figures returns the figures of s.
func (s *service) figures(r *load.Result) figures {
	f := figures{
		perSecond: r.PerSecond, p50: r.P50, p99: r.P99, idle: r.Idle / (1 << 10), other: r.OtherCPU,
	}
	for i, server := range r.Servers {
		switch {
		case i < len(s.replicas):
			f.cpu += server.CPU
			f.peak += float64(server.PeakRSS) / (1 << 20)
		case s.store:
			f.storeCPU += server.CPU // there is no Envoy in this case
		default:
			f.envoyCPU += server.CPU
		}
	}
	return f
}
