// Command rlsload measures a rate-limit service. See rlsload -h.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/load"
	"github.com/sluice-ratelimit/sluice/bench/program"
)

const usage = `Usage: rlsload [flags]

Calls ShouldRateLimit of any service that speaks envoy.service.ratelimit.v3 and
prints requests per second, latency, and the CPU time per request and memory of
the processes that -pid names (Linux only).

  closed loop: -in-flight calls are in flight all the time
  open loop:   -rate calls per second are due, independent of earlier calls;
               latency is measured from the due time

Examples:
  rlsload -addr 127.0.0.1:8081 -pid "$(pgrep -x sluice)" -domain edge -entries user=u%d -keys 10000
  rlsload -rate 5000 -timeout 20ms -entries 'user=u%d,path=/a;remote_address=10.0.0.%d' -keys 200
  rlsload -fill -keys 1000000 -pid 4711      # memory of a million counters

Flags:
`

func main() { program.Main("rlsload", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c load.Config
	flags := flag.NewFlagSet("rlsload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	addrs := flags.String("addr", "127.0.0.1:8081", "address of the service, `host:port` or unix:PATH; connections are spread over several, comma-separated")
	flags.BoolVar(&c.HTTP, "http", false, "the addresses are Envoys, which call the service: send HTTP/1.1 requests with a header for each entry")
	flags.IntVar(&c.Connections, "conns", 2, "HTTP/2 connections")
	flags.IntVar(&c.InFlight, "in-flight", 64, "concurrent calls over all connections (open loop: at most)")
	flags.Float64Var(&c.Rate, "rate", 0, "open loop: calls per second over all connections; 0 is a closed loop")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "measured time")
	flags.DurationVar(&c.Warmup, "warmup", 2*time.Second, "time before the measurement")
	flags.DurationVar(&c.Timeout, "timeout", 0, "deadline of each call, sent as grpc-timeout; 0 means none")
	flags.StringVar(&c.Domain, "domain", "bench", "rate-limit domain")
	flags.StringVar(&c.Entries, "entries", "counter=%d", "descriptor `entries` key=value,...; a ';' starts another descriptor, and %d in a value is replaced by the key number")
	flags.Uint64Var(&c.Keys, "keys", 1, "key numbers are 0 to `n`-1")
	flags.BoolVar(&c.Fill, "fill", false, "call each key number once, in order, without warm-up, and stop (closed loop)")
	flags.Func("pid", "comma-separated process `ids` of the service and its store, to measure", func(s string) (err error) {
		c.PIDs, err = program.Numbers(s)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.Addrs = strings.Split(*addrs, ",")
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	r, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	return r.Print(stdout)
}
