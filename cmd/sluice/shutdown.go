package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// shutdownMargin is the time that a shutdown may take in addition to the drain delay and timeout:
// it closes listeners and sends the last metrics and spans.
const shutdownMargin = 10 * time.Second

// logFlushTimeout is how long a shutdown waits for the last log lines to be written.
const logFlushTimeout = time.Second

// waitForShutdown returns the result of wait, or an error if wait has not returned within bound
// after ctx ended. Goroutines may be blocked, for example by a file system that does not respond,
// and the process must exit all the same.
func waitForShutdown(ctx context.Context, bound time.Duration, wait func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("shutdown timed out after %v; exiting with tasks still running", bound)
	}
}

// task adapts run, which returns when ctx ends and cannot fail, to an errgroup.
func task(ctx context.Context, run func(context.Context)) func() error {
	return func() error {
		run(ctx)
		return nil
	}
}

// signalContext returns a context that is canceled at the first SIGTERM, SIGINT or SIGHUP, or by
// stop. The next signal terminates the process.
func signalContext(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before the shutdown starts
		cancel()
	}()
	return ctx, cancel
}
