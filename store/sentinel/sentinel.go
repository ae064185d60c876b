package sentinel

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A Watch asks the Sentinels, which know where a primary is. One of them may lag behind, be cut off together with a primary of
// yesterday, or lie, so all are asked, and what most of those say that answer holds.
//
// They agree on a new primary a second and more after it has begun to take writes, and what the old one counts
// meanwhile is forgotten. So a replica that one of them tells of (heard.go) is the primary as soon as it says so
// itself, if most know it as a replica.
type Watch struct {
	options Options
	all     []*sentinel
	asked   sync.WaitGroup

	mu             sync.Mutex
	Candidate      string    // a replica that may become the primary
	CandidateUntil time.Time // how long that is looked at
	promoted       string    // one that has become it, empty if what most say holds
	replaced       string    // of whom most say that it is the primary meanwhile
}

// A sentinel is one of them.
type sentinel struct {
	server *redis.Server

	mu     sync.Mutex  // held while it is asked
	client *redis.Conn // nil if there is no connection
}

// A Home is the store that the Sentinels are asked for.
type Options struct {
	// Server has the Sentinels, and what is needed to reach them and the primary.
	Server *redis.Server
	// Timeout is that of a dial.
	Timeout time.Duration
	// Address returns the address that the store is at, nothing while it is away.
	Address func() string
	// Refresh has [sentinels.Look] called soon.
	Refresh func()
	// Failed counts a failure.
	Failed func(kind redis.Kind)
	// Guard reports whether do returns, and counts it if it panics.
	Guard func(do func()) (returned bool)
}

// New returns what asks the Sentinels of home.
func New(home Options) *Watch {
	s := &Watch{options: home}
	for _, address := range home.Server.Sentinels {
		s.all = append(s.all, &sentinel{server: home.Server.Sentinel(address)})
	}
	return s
}

// Listen hears what the Sentinels tell until ctx ends.
func (s *Watch) Listen(ctx context.Context) {
	var listeners sync.WaitGroup
	for _, one := range s.all {
		listeners.Go(func() { s.listen(ctx, one) })
	}
	listeners.Wait()
}

// Dial connects to where the primary is now.
func (s *Watch) Dial(ctx context.Context) (*redis.Conn, error) {
	address, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	return redis.Dial(ctx, s.options.Server.At(address), s.options.Timeout)
}

// Current returns where the primary is, nothing if that is not known.
func (s *Watch) Current(ctx context.Context) (address string) {
	address, err := s.Primary(ctx)
	if err != nil {
		return ""
	}
	if err := s.CheckPromotion(ctx, address); err != nil {
		s.options.Failed(redis.KindOf(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.promoted, address)
}

// Primary returns where the primary is.
func (s *Watch) Primary(ctx context.Context) (string, error) {
	address, _, err := s.vote(ctx, func(c *redis.Conn) (string, error) { return c.Primary(ctx, s.options.Server.Master) })
	if err != nil {
		return "", redis.NewError(fmt.Errorf("ask Sentinel for the primary: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.promoted != "" && address == s.replaced {
		return s.promoted, nil
	}
	s.promoted = ""
	return address, nil
}

// vote returns what most answer, as soon as more than half of all do, and how many did. Where as many say one thing
// as another, that where the store is holds.
func (s *Watch) vote(ctx context.Context, question func(c *redis.Conn) (string, error)) (best string, votes int, err error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(s.all))
	for _, one := range s.all {
		s.asked.Go(func() {
			a := answer{err: redis.ErrPanicked}
			s.options.Guard(func() { a.text, a.err = one.query(ctx, s.options.Timeout, question) })
			answers <- a
		})
	}
	now := s.options.Address()
	said := map[string]int{}
	var errs []error
	for range s.all {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		said[a.text]++
		if n := said[a.text]; n > votes || n == votes && a.text == now {
			best, votes = a.text, n
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

// query asks one, on the connection that there is, or on a new one.
func (s *sentinel) query(ctx context.Context, timeout time.Duration, question func(c *redis.Conn) (string, error)) (answer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		if s.client, err = redis.Dial(ctx, s.server, timeout); err != nil {
			s.client = nil
			return "", err
		}
	}
	if answer, err = question(s.client); err != nil {
		s.client.Close()
		s.client = nil
	}
	return answer, err
}

// Close ends the connections, when nobody asks any more.
func (s *Watch) Close() {
	s.asked.Wait()
	for _, one := range s.all {
		if one.client != nil {
			one.client.Close()
		}
	}
}
