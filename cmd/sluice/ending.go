package main

import (
	"context"
	"fmt"
	"time"
)

// endingSlack is the time to end beside the drain delay and timeout: for closing
// listeners and for sending the last metrics and spans.
const endingSlack = 10 * time.Second

// logPatience is how long the end waits for the last lines of the log to be written.
const logPatience = time.Second

// endWithin waits for what runs until ctx is done. It returns an error if that has not
// ended within bound after. A file system that does not answer, for example, blocks its
// readers, and the process must not wait for them.
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
		return fmt.Errorf("something still runs %v after the signal to end; the process ends without it", bound)
	}
}
