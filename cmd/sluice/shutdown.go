package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// shutdownMargin is the time to end beside the drain delay and timeout: for closing
// listeners and for sending the last metrics and spans.
const shutdownMargin = 10 * time.Second

// logFlushTimeout is how long the end waits for the last lines of the log to be written.
const logFlushTimeout = time.Second

// waitForShutdown waits for what runs until ctx is done. It returns an error if that has not
// ended within bound after. A file system that does not answer, for example, blocks its
// readers, and the process must not wait for them.
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
		return fmt.Errorf("something still runs %v after the signal to end; the process ends without it", bound)
	}
}

// task is for a group: it runs what ends with ctx, and cannot fail.
func task(ctx context.Context, run func(context.Context)) func() error {
	return func() error {
		run(ctx)
		return nil
	}
}

// signalContext returns a context that ends at the first signal to end. A second one ends
// the process at once, as the first one does for commands that do not call this. Stop
// ends the context too.
func signalContext(ctx context.Context) (until context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before anything is done
		cancel()
	}()
	return ctx, cancel
}
