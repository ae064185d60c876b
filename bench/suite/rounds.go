package main

import (
	"context"
	"fmt"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

// overGRPC measures every case over gRPC.
func overGRPC(ctx context.Context, b *builder, o *options, page *page) error {
	services, err := newServices(ctx, b, o.percents)
	if err != nil {
		return err
	}
	page.Line("## Over gRPC\n")
	page.Line("Medians of %d interleaved rounds of %v. The ratio is that of the CPU time per request to", o.rounds, o.duration)
	page.Line("the first line's in the same round: median (least to greatest). The peak is the most that the process had.\n")
	for _, c := range o.cases {
		results, err := measureCase(ctx, b, o, &c, services)
		if err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
		page.caseTable(&c, services, results)
	}
	return nil
}

// measureCase returns each service's result of each round. It starts the services anew,
// so their memory is that of this case.
func measureCase(ctx context.Context, b *builder, o *options, c *benchCase, services []*service) ([][]*load.Result, error) {
	for _, s := range services {
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		defer s.process.Kill()
	}
	results := make([][]*load.Result, len(services))
	for round := range o.rounds {
		for i, s := range services {
			fmt.Fprintf(b.progress, "%s: round %d of %d, %s\n", c.name, round+1, o.rounds, s.name)
			config := c.config(s)
			config.Fill = true
			if c.fill && s.limits && round == 0 {
				if _, err := measure(ctx, s, config); err != nil {
					return nil, err
				}
			}
			config.Fill, config.Rate, config.Duration, config.Warmup = false, c.rate, o.duration, o.warmup
			r, err := measure(ctx, s, config)
			if err != nil {
				return nil, err
			}
			if denied := r.OverLimit > r.OK; denied != (c.denied && s.limits) {
				return nil, fmt.Errorf("%s: %d answers are OK and %d OVER_LIMIT, which is not what this case is for", s.name, r.OK, r.OverLimit)
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}

// measure loads a service once.
func measure(ctx context.Context, s *service, c load.Config) (*load.Result, error) {
	r, err := load.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if r.Errors > 0 || r.Unknown > 0 || r.Answered == 0 {
		return nil, fmt.Errorf("%s: %d answers, %d errors, %d unknown codes: %s", s.name, r.Answered, r.Errors, r.Unknown, r.LastError)
	}
	return r, nil
}
