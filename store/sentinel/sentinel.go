package sentinel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A Watch queries Sentinels for the primary. A Sentinel may lag behind, be cut off with an old
// primary, or be malicious, so all are queried, and the answer of the majority counts. Without a
// majority, an answer counts only if it is that of the last one.
type Watch struct {
	options Options
	all     []*sentinel
	queries sync.WaitGroup

	mu       sync.Mutex
	majority string // the primary that a majority named last
}

// A sentinel is one of the Sentinels.
type sentinel struct {
	server *redis.Server

	turn   chan struct{} // full during a query
	client *redis.Conn   // nil if not connected
}

// Options has the store and the callbacks of a [Watch].
type Options struct {
	// Server has the Sentinels, and the credentials for them and for the primary.
	Server *redis.Server
	// Timeout bounds a dial.
	Timeout time.Duration
	// Address returns the address that the store is connected to, "" while it is unavailable.
	Address func() string
	// Guard calls do and reports whether it returns. It counts a panic.
	Guard func(do func()) (returned bool)
}

// New returns a Watch for the given options.
func New(options Options) *Watch {
	s := &Watch{options: options}
	for _, address := range options.Server.Sentinels {
		s.all = append(s.all, &sentinel{server: options.Server.Sentinel(address), turn: make(chan struct{}, 1)})
	}
	return s
}

// Dial connects to the current primary.
func (s *Watch) Dial(ctx context.Context) (*redis.Conn, error) {
	address, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	return redis.Dial(ctx, s.options.Server.At(address), s.options.Timeout)
}

// Primary returns the address of the primary.
func (s *Watch) Primary(ctx context.Context) (string, error) {
	address, votes, err := s.vote(ctx)
	if err != nil {
		return "", redis.NewError(fmt.Errorf("ask Sentinel for the primary: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case votes > len(s.all)/2:
		s.majority = address
	case address != s.majority:
		return "", redis.NewError(fmt.Errorf("ask Sentinel for the primary: only %d of %d Sentinels name %s; start the others", votes, len(s.all), address))
	}
	return address, nil
}

// vote returns the most frequent answer, as soon as more than half of all agree, and the number of
// its votes. In a tie the current address of the store wins.
func (s *Watch) vote(ctx context.Context) (best string, votes int, err error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(s.all))
	for _, one := range s.all {
		s.queries.Go(func() {
			a := answer{err: redis.ErrPanicked}
			s.options.Guard(func() { a.text, a.err = one.query(ctx, s.options.Timeout, s.options.Server.Master) })
			answers <- a
		})
	}
	now := s.options.Address()
	counts := map[string]int{}
	var errs []error
	for range s.all {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		counts[a.text]++
		if n := counts[a.text]; n > votes || n == votes && a.text == now {
			best = a.text
			votes = n
		}
		if votes > len(s.all)/2 {
			break
		}
	}
	if votes == 0 {
		return "", 0, redis.Joined(errs)
	}
	return best, votes, nil
}

// query asks one Sentinel for the primary with the name master, over a new connection if necessary.
// It waits for other queries for the given timeout at most, so that they do not accumulate while the
// Sentinel is silent.
func (s *sentinel) query(ctx context.Context, timeout time.Duration, master string) (address string, err error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-waiting.Done():
		return "", fmt.Errorf("wait for another query: %w", waiting.Err())
	}
	if s.client == nil {
		if s.client, err = redis.Dial(ctx, s.server, timeout); err != nil {
			s.client = nil
			return "", err
		}
	}
	if address, err = s.client.Primary(ctx, master); err != nil {
		s.client.Close()
		s.client = nil
	}
	return address, err
}

// Close closes the connections after all queries have ended.
func (s *Watch) Close() {
	s.queries.Wait()
	for _, one := range s.all {
		if one.client != nil {
			one.client.Close()
		}
	}
}
