// Package process runs the programs of the end-to-end tests and the demo, and ensures that none
// outlives its starter. On Linux the kernel kills the child even if the starter is killed.
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

// Process is a running program. It is safe for concurrent use. The starter must call [Process.Stop]
// or [Process.Kill].
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *log
	// done is closed after the end of the program and of its output.
	done chan struct{}
}

// Start starts cmd and captures its Stdout and Stderr.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: cmd.Path, cmd: cmd, log: newLog(), done: make(chan struct{})}
	cmd.Stdout = p.log
	cmd.Stderr = p.log
	// A child of the program may keep its output open after its end.
	cmd.WaitDelay = time.Minute
	confine(cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run locks an operating system thread for the life of the program: Linux sends the parent-death
// signal when the thread that started the child ends, and Go may end any unlocked thread.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	// The exit status is in ProcessState, and the output in the log.
	_ = p.cmd.Wait()
	p.log.close()
	close(p.done)
}

// Wait waits for the end of the program and returns its exit code, or -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", p.name, ctx.Err())
	}
}

// WaitLine waits for a line of past or future output that match accepts. If the program or ctx ends
// first, it returns an error with all output.
func (p *Process) WaitLine(ctx context.Context, match func(line string) bool) error {
	if err := p.log.wait(ctx, match); err != nil {
		return fmt.Errorf("wait for output of %s: %w; its log:\n%s", p.name, err, p.log)
	}
	return nil
}

// PauseOutput stops reading the program's output, so that its pipe fills, until release is called.
func (p *Process) PauseOutput() (release func()) {
	p.log.readMu.Lock()
	return p.log.readMu.Unlock
}

// Log returns the output so far.
func (p *Process) Log() string { return p.log.String() }

// Stop sends SIGTERM and returns the exit code. If ctx ends first, it kills the program and returns
// an error.
func (p *Process) Stop(ctx context.Context) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
		return 0, fmt.Errorf("%w; killed; its log:\n%s", err, p.log)
	}
	return code, nil
}

// Signal sends sig. It does nothing if the program has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Kill kills the program and its children, and waits for its end.
func (p *Process) Kill() {
	select {
	case <-p.done:
		return // its process ID may be reused
	default:
	}
	// The only possible error is that they have ended already.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }
