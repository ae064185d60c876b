package proxy_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// load is a set of clients that send requests continuously.
type load struct {
	ended  atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int
}

// startLoad runs clients that call send in a loop. send returns an answer as a word, or an error.
func startLoad(t *testing.T, clients int, send func() (string, error)) *load {
	t.Helper()
	l := &load{counts: make(map[string]int)}
	for range clients {
		l.wg.Go(func() {
			for !l.ended.Load() {
				got, err := send()
				if err != nil {
					got = "error: " + err.Error()
				}
				l.mu.Lock()
				l.counts[got]++
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// total returns the number of answers.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, n := range l.counts {
		sum += n
	}
	return sum
}

// awaitAnswers waits for the given number of further answers.
func (l *load) awaitAnswers(t *testing.T, answers int) {
	t.Helper()
	until := l.total() + answers
	suite.Eventually(t, fmt.Sprintf("%d more answers", answers), func() bool { return l.total() >= until })
}

// stop stops the clients, waits for their last answers, and returns the number of each answer.
func (l *load) stop() map[string]int {
	l.ended.Store(true)
	l.wg.Wait()
	return maps.Clone(l.counts)
}
