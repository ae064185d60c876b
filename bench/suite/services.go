package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// The names of the services in the tables.
const (
	sluiceBuiltin = "**sluice**"
	sluiceGRPC    = "sluice over grpc-go"
	sluiceStore   = "**sluice, store**"
	noop          = "no-op, grpc-go"
	floor         = "floor"
	limitador     = "limitador"
	ratelimit     = "ratelimit"
)

var (
	//go:embed rules limitador.yaml simulated.yaml
	rules embed.FS
	//go:embed envoy.yaml
	bootstrap []byte
)

// service is a rate-limit service under measurement.
type service struct {
	name string
	// limits is false for a service that always returns OK.
	limits bool
	// bootstrap is the configuration of its Envoy. If it is nil, Envoy has the configuration of
	// envoy.yaml, and calls the service for each request.
	bootstrap []byte
	// warmup is the duration of the load before the first round, in which the service reaches its
	// steady state.
	warmup time.Duration
	// store is true if its replicas share their counters in a store.
	store bool
	// start starts a replica and returns its address. store is the address of its store, if it has
	// one.
	start func(ctx context.Context, store string, prepare func(*exec.Cmd)) (*process.Process, string, error)

	addrs    []string // of the replicas
	envoy    string   // address of an Envoy that calls it
	replicas []*process.Process
	others   []*process.Process // its store, or that Envoy
}

// launch starts s for a case.
func (s *service) launch(ctx context.Context, w *testbed, c *benchCase) error {
	store := ""
	if s.store {
		p, addr, err := w.startStore(ctx)
		if err != nil {
			return err
		}
		s.others, store = append(s.others, p), addr
	}
	for range max(1, len(c.replicas)) {
		p, addr, err := s.start(ctx, store, func(cmd *exec.Cmd) {
			if c.oneCore {
				cmd.Args = append([]string{"taskset", "-c", "0", cmd.Path}, cmd.Args[1:]...)
				cmd.Path = w.taskset
			}
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
		s.replicas, s.addrs = append(s.replicas, p), append(s.addrs, addr)
	}
	if !c.envoy {
		return nil
	}
	dir, err := os.MkdirTemp(w.dir, "envoy")
	if err != nil {
		return err
	}
	o := envoy.Options{Binary: w.envoy, Bootstrap: bootstrap, Clusters: map[string][]string{"service": s.addrs}, Workers: 1, Dir: dir}
	if s.bootstrap != nil {
		if err := w.startUpstream(ctx); err != nil {
			return err
		}
		o.Bootstrap, o.Clusters["upstream"] = s.bootstrap, []string{w.upstream}
	}
	e, err := envoy.Start(ctx, o)
	if err != nil {
		return err
	}
	s.others, s.envoy = append(s.others, e.Process), e.Addr("ingress")
	return nil
}

// kill kills the processes that launch started.
func (s *service) kill() {
	for _, p := range slices.Concat(s.replicas, s.others) {
		p.Kill()
	}
	s.addrs, s.replicas, s.others = nil, nil, nil
}

// pids returns the process IDs to measure, the replicas first.
func (s *service) pids() []int {
	var pids []int
	for _, p := range slices.Concat(s.replicas, s.others) {
		pids = append(pids, p.PID())
	}
	return pids
}

// sluiceService returns sluice with additional arguments and variables.
func (w *testbed) sluiceService(name string, env []string, args ...string) *service {
	s := &service{name: name, limits: true}
	s.start = func(ctx context.Context, store string, prepare func(*exec.Cmd)) (*process.Process, string, error) {
		args := append([]string{"--config", filepath.Join(w.dir, "rules")}, args...)
		if s.store {
			args = append(args, "--store", "redis://"+store)
		}
		p, err := sluice.Start(ctx, sluice.Options{
			Binary: w.sluice, Args: args, Env: env, Prepare: prepare,
			Addrs: map[string]string{"http": "", "debug": "", "metrics": ""},
		})
		if err != nil {
			return nil, "", err
		}
		return p.Process, p.Addr("grpc"), nil
	}
	return s
}

// noopService returns a program of this module that always returns OK.
func noopService(name, path string) *service {
	return &service{name: name, start: func(ctx context.Context, _ string, prepare func(*exec.Cmd)) (*process.Process, string, error) {
		cmd := exec.Command(path)
		prepare(cmd)
		p, err := process.Start(cmd)
		if err != nil {
			return nil, "", err
		}
		addr := ""
		err = p.WaitLine(ctx, func(line string) (found bool) {
			addr, found = strings.CutPrefix(line, "listening on ")
			return found
		})
		if err != nil {
			p.Kill()
		}
		return p, addr, err
	}}
}
