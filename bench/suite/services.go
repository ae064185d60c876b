package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

//go:embed rules.yaml
var rules []byte

// service is a rate-limit service under measurement.
type service struct {
	name string
	// limits is false for a service that answers OK to all.
	limits bool
	// launch starts it and returns where it listens.
	launch func(context.Context) (*process.Process, string, error)

	addr    string
	process *process.Process
}

// start starts s and waits until it says where it listens.
func (s *service) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.process, s.addr, err = s.launch(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

// newServices builds the services: two no-ops and sluice over both transports, or sluice alone once for each
// percentage of GOGC. The others are compared with the first.
func newServices(ctx context.Context, b *builder, percents []int) ([]*service, error) {
	fmt.Fprintln(b.progress, "building sluice")
	binary, err := sluice.Build(ctx, b.root, b.dir)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "config")
	if err := os.Mkdir(config, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "rules.yaml"), rules, 0o600); err != nil {
		return nil, err
	}
	ours := func(name string, env []string, args ...string) *service {
		return &service{name: name, limits: true, launch: func(ctx context.Context) (*process.Process, string, error) {
			s, err := sluice.Start(ctx, sluice.Options{
				Binary: binary, Args: append([]string{"--config", config}, args...), Env: env,
				Addrs: map[string]string{"http": "", "debug": "", "metrics": ""},
			})
			if err != nil {
				return nil, "", err
			}
			return s.Process, s.Addr("grpc"), nil
		}}
	}
	var services []*service
	for _, percent := range percents {
		setting := fmt.Sprint("GOGC=", percent)
		services = append(services, ours(setting, []string{setting}))
	}
	if len(services) > 0 {
		return services, nil
	}
	noop, err := b.build(ctx, "bench", "noop", "build", "-buildvcs=false", "./noop")
	if err != nil {
		return nil, err
	}
	return []*service{
		{name: "no-op, grpc-go as it comes", launch: noopAt(noop)},
		{name: "no-op, 4 stream workers", launch: noopAt(noop, "-workers", "4")},
		ours(whole, nil),
		ours("sluice, own transport", nil, "--grpc-transport", "own"),
	}, nil
}

// whole is the name of sluice with its defaults.
const whole = "**sluice**"

func noopAt(path string, args ...string) func(context.Context) (*process.Process, string, error) {
	return func(ctx context.Context) (*process.Process, string, error) {
		p, err := process.Start(exec.Command(path, args...)) //nolint:gosec,noctx // what was built here, and Stop ends it
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
	}
}
