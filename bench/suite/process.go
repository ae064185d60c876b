package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command returns a command that ends with ctx, and with this process however
// that ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // what was built here, and go
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // then it is killed
	bind(cmd)
	return cmd
}

// output runs a command to its end and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := command(ctx, name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", cmd, err, errs.Bytes())
	}
	return out.String(), nil
}

// service is a rate-limit service under measurement.
type service struct {
	name string
	// path and args start it; path is empty if it runs already.
	path string
	args []string
	// env is what it has in its environment beside this process's.
	env []string
	// limits is unset where it answers OK to all.
	limits bool
	// address finds where it listens in a line of its output.
	address func(line string) (string, bool)

	addr string
	pids []int
	cmd  *exec.Cmd
}

// parsePeer reads name=address=pid,pid.
func parsePeer(s string) (*service, error) {
	name, rest, _ := strings.Cut(s, "=")
	i := strings.LastIndexByte(rest, '=')
	if name == "" || i < 1 {
		return nil, errors.New("must be name=address=pid,pid")
	}
	p := &service{name: name, addr: rest[:i], limits: true}
	for f := range strings.SplitSeq(rest[i+1:], ",") {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("pid %q: must be a number", f)
		}
		p.pids = append(p.pids, pid)
	}
	return p, nil
}

// start starts s and waits until it says where it listens.
func (s *service) start(ctx context.Context) error {
	if s.path == "" {
		return nil
	}
	s.cmd = command(ctx, s.path, s.args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	out := &addressWriter{find: s.address, found: make(chan string, 1)}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.pids = []int{s.cmd.Process.Pid}
	select {
	case s.addr = <-out.found:
		return nil
	case <-time.After(10 * time.Second):
		s.stop()
		return fmt.Errorf("start %s: it does not say where it listens:\n%s", s.name, out)
	case <-ctx.Done():
		s.stop()
		return ctx.Err()
	}
}

// stop ends s and waits until it is gone.
func (s *service) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(5*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait() // it was told to end, so how it ends says nothing
	kill.Stop()
}

// addressWriter keeps what a service prints and looks for its address.
type addressWriter struct {
	find  func(line string) (string, bool)
	found chan string

	mu   sync.Mutex
	text bytes.Buffer
	done bool
}

func (w *addressWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const enough = 64 << 10
	if w.done || w.text.Len() > enough {
		return len(p), nil
	}
	w.text.Write(p)
	lines := bufio.NewReader(bytes.NewReader(w.text.Bytes()))
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return len(p), nil
		}
		if addr, ok := w.find(line); ok {
			w.done = true
			w.found <- addr
			return len(p), nil
		}
	}
}

func (w *addressWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
