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

// listeners are the names of the listeners in the log.
var listeners = [...]string{"grpc", "http", "debug", "metrics"}

// Build builds sluice from the repository at root into dir and returns the path of the binary.
// flags are more flags of `go build`, such as -race. It uses `go run`, whose linked binaries Go
// caches, unlike those of `go build`, so that the test packages of one tree link the binary once
// and copy it. The binary accepts hidden flags: constants, and variables that have no flag.
func Build(ctx context.Context, root, dir string, flags ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "sluice"))
	if err != nil {
		return "", err
	}
	args := append([]string{"run", "-buildvcs=false", "-ldflags=-X=main.hiddenFlags=tests", "-exec", "cp"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/sluice", path)...)
	cmd.Dir = root
	if slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // required by the race detector
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sluice: %w:\n%s", err, out)
	}
	return path, nil
}

// Options configures `sluice serve`.
type Options struct {
	// Binary is the path of sluice; see [Build].
	Binary string
	// Args contains flags other than addresses, such as --config.
	Args []string
	// Env contains additional variables as NAME=value. Optional.
	Env []string
	// Dir is the working directory. Optional; default the caller's.
	Dir string
	// Addrs contains addresses by listener (grpc, http, debug, metrics), "" to disable it.
	// Optional; default a free port on 127.0.0.1.
	Addrs map[string]string
	// Prepare may change the command before it starts, for example to use other namespaces. The
	// started process must become sluice. Optional.
	Prepare func(*exec.Cmd)
}

// Sluice is a running server. It is safe for concurrent use. The starter must call Stop or Kill.
type Sluice struct {
	*process.Process

	addrs map[string]string
}

// Start starts sluice and returns when all its listeners are listening. If sluice or ctx ends
// first, Start returns an error with its output and leaves no process running.
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
	// Stop ends sluice, not a context.
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

// Addr returns the address of the given listener, "" if it is disabled.
func (s *Sluice) Addr(listener string) string { return s.addrs[listener] }

// listening parses the log line of a listener's address. With GODEBUG=gctrace=1, output of the
// runtime may precede it on the line.
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
