// Package process runs the programs that the end-to-end tests and the demo need and makes
// sure that none outlives its starter. On Linux the kernel kills the child even if the
// starter is killed.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running program. Any number of goroutines may use it. Its starter must
// call [Process.Stop] or [Process.Kill].
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *log
	// done is closed when the program has ended and its output is complete.
	done chan struct{}
}

// Start starts the program of cmd, whose Stdout and Stderr it takes.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: cmd.Path, cmd: cmd, log: newLog(), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// Something that it started may hold its output open after its end.
	cmd.WaitDelay = time.Second
	confine(cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run holds one operating system thread for the life of the program: Linux sends
// the parent-death signal when the thread that started the child ends, and Go may
// end any thread that no goroutine holds.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	// The exit status is in ProcessState, and the log has what the program said.
	_ = p.cmd.Wait()
	p.log.close()
	close(p.done)
}

// Wait returns the exit code when the program has ended, -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", p.name, ctx.Err())
	}
}

// WaitLine waits for a line of output that match accepts, past output included.
// It returns an error with all output if the program or ctx ends before.
func (p *Process) WaitLine(ctx context.Context, match func(line string) bool) error {
	if err := p.log.wait(ctx, match); err != nil {
		return fmt.Errorf("wait for output of %s: %w; it said:\n%s", p.name, err, p.log)
	}
	return nil
}

// PauseOutput stops the reading of the program's output, whose pipe then fills, until
// release is called.
func (p *Process) PauseOutput() (release func()) {
	p.log.readMu.Lock()
	return p.log.readMu.Unlock
}

// Log returns all output so far.
func (p *Process) Log() string { return p.log.String() }

// Stop asks the program to end (SIGTERM) and returns its exit code. If ctx ends
// first, it kills the program and returns an error.
func (p *Process) Stop(ctx context.Context) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
		return 0, fmt.Errorf("%w; killed; it said:\n%s", err, p.log)
	}
	return code, nil
}

// Signal sends sig; to a program that has ended it does nothing.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the program and those it started at once and waits until it is gone.
func (p *Process) Kill() {
	select {
	case <-p.done:
		return // its number may be another's by now
	default:
	}
	// The only error is that they have ended already.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// PID returns the operating system's number for the program.
func (p *Process) PID() int { return p.cmd.Process.Pid }
