package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// shutdownMargin is the time that a shutdown may take in addition to the drain delay and timeout:
// it closes listeners and sends the last metrics and spans.
const shutdownMargin = 10 * time.Second

// logFlushTimeout is how long a shutdown waits for the last log lines to be written. Only tests
// change it.
var logFlushTimeout = time.Second

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
