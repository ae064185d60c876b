package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// The names of the services in the tables.
const (
	sluiceBuiltin = "**sluice**"
	sluiceGRPC    = "sluice over grpc-go"
	sluiceStore   = "**sluice, store**"
	sluiceBlocks  = "**sluice, store, blocks**"
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

	storeAddr string   // of its store
	addrs     []string // of the replicas
	envoy     string   // address of an Envoy that calls it
	replicas  []*process.Process
	others    []*process.Process // its store, or that Envoy
}

// launch starts s for a case.
func (s *service) launch(ctx context.Context, w *testbed, c *benchCase) error {
	s.storeAddr = ""
	if s.store {
		p, addr, err := w.startStore(ctx)
		if err != nil {
			return err
		}
		s.others = append(s.others, p)
		s.storeAddr = addr
	}
	for range max(1, len(c.replicas)) {
		p, addr, err := s.start(ctx, s.storeAddr, func(cmd *exec.Cmd) {
			if c.oneCore {
				cmd.Args = append([]string{"taskset", "-c", "0", cmd.Path}, cmd.Args[1:]...)
				cmd.Path = w.taskset
			}
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
		s.replicas = append(s.replicas, p)
		s.addrs = append(s.addrs, addr)
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
		o.Bootstrap = s.bootstrap
		o.Clusters["upstream"] = []string{w.upstream}
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
	s.addrs = nil
	s.replicas = nil
	s.others = nil
}

// pids returns the process IDs to measure, the replicas first.
func (s *service) pids() []int {
	var pids []int
	for _, p := range slices.Concat(s.replicas, s.others) {
		pids = append(pids, p.PID())
	}
	return pids
}

// commands returns the number of commands that the store of s has run, without those of scripts; 0
// if it has none.
func (s *service) commands(ctx context.Context) (n float64, err error) {
	if !s.store {
		return 0, nil
	}
	to := &redis.Server{Network: "tcp", Address: s.storeAddr}
	c, err := redis.Dial(ctx, to, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	r, err := c.Query(ctx, resp.Limits{Values: 1, Bytes: 1 << 16}, "INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(r.Text(0)) {
		name, calls, ok := strings.Cut(line, ":calls=")
		if ok && slices.Contains(sent, strings.TrimPrefix(name, "cmdstat_")) {
			calls, _, _ = strings.Cut(calls, ",")
			count, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				return 0, err
			}
			n += count
		}
	}
	return n, nil
}

// sent are the commands that services send, and that scripts of sluice do not call.
var sent = []string{"evalsha", "eval", "incrby", "expireat", "expire", "getrange", "zadd"}

// sluiceService returns sluice with additional arguments.
func (w *testbed) sluiceService(name string, args ...string) *service {
	s := &service{name: name, limits: true}
	s.start = func(ctx context.Context, store string, prepare func(*exec.Cmd)) (*process.Process, string, error) {
		args := append([]string{"--config", filepath.Join(w.dir, "rules")}, args...)
		if s.store {
			args = append(args, "--store", "redis://"+store)
		}
		p, err := sluice.Start(ctx, sluice.Options{
			Binary: w.sluice, Args: args, Prepare: prepare,
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
