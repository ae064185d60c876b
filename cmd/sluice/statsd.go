package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// statsdFlags configures sending metrics to StatsD, in addition to /metrics.
type statsdFlags struct {
	telemetry.StatsdOptions `embed:""`
}

func (f *statsdFlags) check() error {
	o := f.StatsdOptions
	if o.Addr != "" {
		if err := o.ParseAddr(); err != nil {
			return fmt.Errorf("--statsd-addr: %w", err)
		}
	}
	if len(f.Mogrifiers) > 0 && !o.Dog {
		return errors.New("--dogstatsd-mogrifier requires --statsd-addr with the scheme dogstatsd or unix")
	}
	if err := telemetry.CheckTags(f.Tags); err != nil {
		return fmt.Errorf("--extra-tags (EXTRA_TAGS): %w", err)
	}
	return nil
}

// start sends metrics until stop is called, which sends them a last time.
func (f *statsdFlags) start(
	ctx context.Context, metrics *telemetry.Metrics, logger *zap.Logger,
) (stop func(), err error) {
	if f.Addr == "" {
		return func() {}, nil
	}
	o := f.StatsdOptions
	if err := o.ParseAddr(); err != nil {
		return nil, err
	}
	s, err := telemetry.NewStatsd(o, metrics, logger)
	if err != nil {
		return nil, err
	}
	// The last flush must follow the last request, which may come after the end of ctx.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}
