package main

import (
	"context"
	"fmt"
	"time"
)

// endingSlack is what ending may take beside the drain delay and timeout: closing
// listeners, the last of the metrics.
const endingSlack = 10 * time.Second

// logPatience is how long the end waits for the last lines of the log to be written.
const logPatience = time.Second

// endWithin waits for what runs until ctx is done. If it has not ended so long
// after, that is an error: a file system that does not answer, say, holds whoever
// reads from it, and the process must not wait for it.
func endWithin(ctx context.Context, bound time.Duration, wait func() error) error {
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
		return fmt.Errorf("something still runs %v after the signal to end, and is given up", bound)
	}
}
