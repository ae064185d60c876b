// Package sluice builds and runs the sluice binary.
package sluice

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

// listeners are the names under which sluice logs its addresses.
var listeners = [...]string{"grpc", "http", "debug", "metrics"}

// Build builds the binary from the repository at root into dir and returns its path.
// Flags are more flags of `go build`, such as -race. It uses `go run`, because Go keeps
// what that links, unlike `go build`. So test packages of one tree link the binary once,
// and each gets a copy.
func Build(ctx context.Context, root, dir string, flags ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "sluice"))
	if err != nil {
		return "", err
	}
	args := append([]string{"run", "-buildvcs=false", "-exec", "cp"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/sluice", path)...)
	cmd.Dir = root
	if slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // which the race detector needs
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sluice: %w:\n%s", err, out)
	}
	return path, nil
}

// Options say how to run `sluice serve`.
type Options struct {
	// Binary is the path of sluice; see [Build].
	Binary string
	// Args are flags beside the addresses, such as --config.
	Args []string
	// Env is added to the environment, as NAME=value. Optional.
	Env []string
	// Dir is where it runs. Optional; default the caller's directory.
	Dir string
	// Addrs says where the listeners named (grpc, http, debug, metrics) listen,
	// "" for not at all. Optional; default a free port on 127.0.0.1 each.
	Addrs map[string]string
	// Prepare may change the command before it starts, for example to run it in other
	// namespaces; the process that it starts must become sluice. Optional.
	Prepare func(*exec.Cmd)
}

// Sluice is a running server. Any number of goroutines may use it. Its starter must call
// Stop or Kill.
type Sluice struct {
	*process.Process

	addrs map[string]string
}

// Start runs sluice and returns when all its listeners listen. If it or ctx ends
// before, Start returns an error with what it said and leaves nothing running.
func Start(ctx context.Context, o Options) (*Sluice, error) {
	args := []string{"serve", "--log-format", "json"}
	awaited := make(map[string]bool)
	for _, name := range listeners {
		addr, given := o.Addrs[name]
		if !given {
			addr = "127.0.0.1:0"
		}
		args = append(args, "--"+name+"-addr="+addr)
		if addr != "" {
			awaited[name] = true
		}
	}
	// Stop, not a context, ends sluice.
	cmd := exec.Command(o.Binary, append(args, o.Args...)...)
	cmd.Dir = o.Dir
	cmd.Env = append(os.Environ(), o.Env...)
	if o.Prepare != nil {
		o.Prepare(cmd)
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	s := &Sluice{Process: p, addrs: make(map[string]string)}
	err = p.WaitLine(ctx, func(line string) bool {
		if name, addr, ok := listening(line); ok {
			s.addrs[name] = addr
			delete(awaited, name)
		}
		return len(awaited) == 0
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return s, nil
}

// Addr returns the address of the listener of that name, "" if it is off.
func (s *Sluice) Addr(listener string) string { return s.addrs[listener] }

// listening reads a log line that says where a listener listens. With GODEBUG=gctrace=1 the runtime's
// words may stand before it.
func listening(line string) (listener, addr string, ok bool) {
	line = line[max(0, strings.IndexByte(line, '{')):]
	var entry struct {
		Message  string `json:"@message"`
		Listener string `json:"listener"`
		Addr     string `json:"addr"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Message != "listening" {
		return "", "", false
	}
	return entry.Listener, entry.Addr, true
}
