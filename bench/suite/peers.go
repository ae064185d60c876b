package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

// peer is a third-party program. It is measured if its variable is set.
type peer struct {
	name, variable string
	store          bool
	// command returns the arguments of the program for these ports: one for gRPC, and two for its
	// other listeners.
	command func(w *testbed, ports [3]string, store string) (args, env []string)
}

var peers = []peer{
	{name: limitador, variable: "LIMITADOR_BIN", command: func(w *testbed, ports [3]string, _ string) (args, env []string) {
		return []string{
			"--rls-ip", "127.0.0.1", "--rls-port", ports[0], "--http-ip", "127.0.0.1", "--http-port", ports[1],
			filepath.Join(w.dir, "limitador.yaml"), "memory", "--cache", "2000000", // its default evicts a million counters
		}, nil
	}},
	{name: ratelimit, variable: "RATELIMIT_BIN", store: true, command: func(w *testbed, ports [3]string, store string) (args, env []string) {
		return nil, []string{
			"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports[0], "PORT=" + ports[1], "DEBUG_PORT=" + ports[2],
			"RUNTIME_ROOT=" + w.dir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + store, "USE_STATSD=false", "LOG_LEVEL=error",
		}
	}},
}

// peer returns a service that runs a peer's program.
func (w *testbed) peer(p *peer, path string) *service {
	return &service{name: p.name, limits: true, store: p.store, start: func(ctx context.Context, store string, prepare func(*exec.Cmd)) (*process.Process, string, error) {
		var ports [3]string
		for i := range ports {
			var err error
			if ports[i], err = freePort(ctx); err != nil {
				return nil, "", err
			}
		}
		args, env := p.command(w, ports, store)
		cmd := exec.Command(path, args...)
		cmd.Env = append(cmd.Environ(), env...)
		prepare(cmd)
		return startListening(ctx, cmd, ports[0])
	}}
}

// startStore starts an empty store.
func (w *testbed) startStore(ctx context.Context) (*process.Process, string, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, "", err
	}
	return startListening(ctx, exec.Command(w.store,
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"), port)
}

func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return "", err
	}
	return port, listener.Close()
}

// startListening starts a program and waits until it listens on a port.
func startListening(ctx context.Context, cmd *exec.Cmd, port string) (*process.Process, string, error) {
	p, err := process.Start(cmd)
	if err != nil {
		return nil, "", err
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		_, _ = p.Wait(ctx)
		cancel() // do not wait for a process that has ended
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			return p, addr, conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.Kill()
			return nil, "", fmt.Errorf("%s does not listen on %s; its output:\n%s", cmd.Path, addr, p.Log())
		}
	}
}
