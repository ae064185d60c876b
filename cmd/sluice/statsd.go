package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// statsdFlags configures sending metrics to StatsD, in addition to /metrics.
type statsdFlags struct {
	telemetry.StatsdOptions `embed:""`

	DogstatsdAddr string `name:"dogstatsd-addr" placeholder:"ADDR" help:"Address of a DogStatsD server to send metrics to: host:port (UDP) or unix:///path. Excludes --statsd-addr. Default: none."`
}

func (f *statsdFlags) check() error {
	if f.Addr != "" && f.DogstatsdAddr != "" {
		return errors.New("--statsd-addr (USE_STATSD) and --dogstatsd-addr (USE_DOG_STATSD) are mutually exclusive")
	}
	for _, a := range []struct{ flag, addr string }{
		{"--statsd-addr (STATSD_HOST, STATSD_PORT)", f.Addr},
		{"--dogstatsd-addr (STATSD_HOST, STATSD_PORT)", strings.TrimPrefix(f.DogstatsdAddr, unixScheme)},
	} {
		if a.addr == "" || strings.HasPrefix(a.addr, "/") && strings.HasPrefix(f.DogstatsdAddr, unixScheme) {
			continue
		}
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			return fmt.Errorf("%s is %q: must be host:port", a.flag, a.addr)
		}
	}
	if len(f.Mogrifiers) > 0 && f.DogstatsdAddr == "" {
		return errors.New("--dogstatsd-mogrifier (USE_DOG_STATSD_MOGRIFIERS) requires --dogstatsd-addr (USE_DOG_STATSD)")
	}
	if err := telemetry.CheckTags(f.Tags); err != nil {
		return fmt.Errorf("--extra-tags (EXTRA_TAGS): %w", err)
	}
	return nil
}

const unixScheme = "unix://"

// start sends metrics until stop is called, which sends them a last time.
func (f *statsdFlags) start(ctx context.Context, metrics *telemetry.Metrics, logger *zap.Logger) (stop func(), err error) {
	o := f.StatsdOptions
	if f.DogstatsdAddr != "" {
		o.Dog, o.Network, o.Addr = true, "udp", f.DogstatsdAddr
		if path, ok := strings.CutPrefix(o.Addr, unixScheme); ok {
			o.Network, o.Addr = "unixgram", path
		}
	}
	if o.Addr == "" {
		return func() {}, nil
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
