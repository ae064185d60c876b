package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

//go:embed rules.yaml
var rules []byte

// Places in what newServices returns: stock is what the others are compared with,
// whole is sluice.
const stock, whole = 0, 2

// newServices builds the services and the load generator.
func newServices(ctx context.Context, b *builder) (services []*service, generator string, err error) {
	if generator, err = b.build(ctx, "bench", "rlsload", "build", "-buildvcs=false", "./rlsload"); err != nil {
		return nil, "", err
	}
	noop, err := b.build(ctx, "bench", "noop", "build", "-buildvcs=false", "./noop")
	if err != nil {
		return nil, "", err
	}
	sluice, err := b.build(ctx, "", "sluice", "build", "-buildvcs=false", "./cmd/sluice")
	if err != nil {
		return nil, "", err
	}
	config := filepath.Join(b.dir, "config")
	if err := os.Mkdir(config, 0o700); err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(filepath.Join(config, "rules.yaml"), rules, 0o600); err != nil {
		return nil, "", err
	}
	serve := []string{
		"serve", "--config", config, "--grpc-addr", "127.0.0.1:0",
		"--http-addr", "", "--debug-addr", "", "--metrics-addr", "", "--log-format", "json",
	}
	return []*service{
		{name: "no-op, grpc-go as it comes", path: noop, address: noopAddress},
		{name: "no-op, 4 stream workers", path: noop, args: []string{"-workers", "4"}, address: noopAddress},
		{name: "**sluice**", path: sluice, args: serve, address: sluiceAddress, limits: true},
	}, generator, nil
}

func noopAddress(line string) (string, bool) {
	return strings.CutPrefix(strings.TrimSpace(line), "listening on ")
}

func sluiceAddress(line string) (string, bool) {
	var l struct {
		Message  string `json:"@message"`
		Listener string `json:"listener"`
		Addr     string `json:"addr"`
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return "", false
	}
	return l.Addr, l.Message == "listening" && l.Listener == "grpc"
}

// overGRPC measures every case over gRPC.
func overGRPC(ctx context.Context, b *builder, o *options, page *page) error {
	services, generator, err := newServices(ctx, b)
	if err != nil {
		return err
	}
	services = append(services, o.peers...)
	page.Line("## Over gRPC\n")
	page.Line("Medians of %d interleaved rounds of %v. The ratio is that of the CPU time per request to", o.rounds, o.duration)
	page.Line("the first line's in the same round: median (least to greatest).\n")
	for _, c := range o.cases {
		results, err := measureCase(ctx, b, o, &c, services, generator)
		if err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
		page.caseTable(&c, services, results)
	}
	return nil
}

// measureCase returns each service's result of each round. The services are
// started for it, so that their memory is that of this case.
func measureCase(ctx context.Context, b *builder, o *options, c *benchCase, services []*service, generator string) ([][]load.Result, error) {
	for _, s := range services {
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		defer s.stop()
	}
	times := []string{"-duration", o.duration.String(), "-warmup", o.warmup.String(), "-rate", strconv.Itoa(c.rate)}
	results := make([][]load.Result, len(services))
	for round := range o.rounds {
		for i, s := range services {
			fmt.Fprintf(b.progress, "%s: round %d of %d, %s\n", c.name, round+1, o.rounds, s.name)
			if c.fill && s.limits && round == 0 {
				if _, err := measure(ctx, generator, c, s, "-fill"); err != nil {
					return nil, err
				}
			}
			r, err := measure(ctx, generator, c, s, times...)
			if err != nil {
				return nil, err
			}
			if refused := r.OverLimit > r.OK; refused != (c.refused && s.limits) {
				return nil, fmt.Errorf("%s: %d answers are OK and %d OVER_LIMIT, which is not what this case is for", s.name, r.OK, r.OverLimit)
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}

// measure runs the load generator once.
func measure(ctx context.Context, generator string, c *benchCase, s *service, args ...string) (load.Result, error) {
	pids := make([]string, len(s.pids))
	for i, pid := range s.pids {
		pids[i] = strconv.Itoa(pid)
	}
	args = append(args, "-addr", s.addr, "-pid", strings.Join(pids, ","))
	out, err := output(ctx, "", generator, append(c.args(), args...)...)
	if err != nil {
		return load.Result{}, err
	}
	var r load.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("read the load generator's result: %w", err)
	}
	if r.Errors > 0 || r.Unknown > 0 || r.Answered == 0 {
		return r, fmt.Errorf("%s: %d answers, %d errors, %d unknown codes: %s", s.name, r.Answered, r.Errors, r.Unknown, r.LastError)
	}
	return r, nil
}
