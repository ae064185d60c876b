package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Sentinels know where a primary is. One of them may lag behind, be cut off together with a primary of
// yesterday, or lie, so all are asked, and what most of those say that answer holds.
//
// They agree on a new primary a second and more after it has begun to take writes, and what the old one counts
// meanwhile is forgotten. So a replica that one of them tells of (heard.go) is the primary as soon as it says so
// itself, if most know it as a replica.
type sentinels struct {
	fleet *fleet
	all   []*sentinel
	asked sync.WaitGroup

	mu       sync.Mutex
	next     string    // a replica that may become the primary
	until    time.Time // how long that is looked at
	promoted string    // one that has become it, empty if what most say holds
	instead  string    // of whom most say that it is the primary meanwhile
}

// A sentinel is one of them.
type sentinel struct {
	server *Server

	mu     sync.Mutex // held while it is asked
	client *client    // nil if there is no connection
}

func newSentinels(f *fleet) *sentinels {
	s := &sentinels{fleet: f}
	for _, address := range f.server.Sentinels {
		s.all = append(s.all, &sentinel{server: f.server.sentinel(address)})
	}
	return s
}

// run keeps s until ctx ends.
func (s *sentinels) run(ctx context.Context) {
	var listeners sync.WaitGroup
	for _, one := range s.all {
		listeners.Go(func() { s.listen(ctx, one) })
	}
	s.fleet.follow(ctx, s.look)
	listeners.Wait()
	s.close()
}

// dial is the lane's dialer: it connects to where the primary is now.
func (s *sentinels) dial(ctx context.Context) (*client, error) {
	address, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	return dial(ctx, s.fleet.server.at(address), s.fleet.timeout)
}

// look has the lane go away if it is at another server than the primary, so that it dials anew: a
// primary that was replaced may go on answering.
func (s *sentinels) look(ctx context.Context) {
	address, err := s.primary(ctx)
	if err != nil {
		return
	}
	if err := s.promotion(ctx, address); err != nil {
		s.fleet.options.observe().Failed(s.fleet.server.String(), kindOf(err))
	}
	s.mu.Lock()
	if s.promoted != "" {
		address = s.promoted
	}
	s.mu.Unlock()
	s.fleet.lane(0).leave(address)
}

// primary returns where the primary is.
func (s *sentinels) primary(ctx context.Context) (string, error) {
	address, _, err := s.vote(ctx, func(c *client) (string, error) { return c.primary(ctx, s.fleet.server.Master) })
	if err != nil {
		return "", &failure{kindOf(err), fmt.Errorf("ask Sentinel for the primary: %w", err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.promoted != "" && address == s.instead {
		return s.promoted, nil
	}
	s.promoted = ""
	return address, nil
}

// vote returns what most answer, as soon as more than half of all do, and how many did. Where as many say one thing
// as another, the lane's server holds.
func (s *sentinels) vote(ctx context.Context, question func(c *client) (string, error)) (best string, votes int, err error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(s.all))
	for _, one := range s.all {
		s.asked.Go(func() {
			a := answer{err: errPanicked}
			s.fleet.options.guard(func() { a.text, a.err = one.ask(ctx, s.fleet, question) })
			answers <- a
		})
	}
	now := s.fleet.lane(0).address()
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
		return "", 0, &failure{kindOf(errs[0]), errors.Join(errs...)}
	}
	return best, votes, nil
}

// ask asks one, on the connection that there is, or on a new one.
func (s *sentinel) ask(ctx context.Context, f *fleet, question func(c *client) (string, error)) (answer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		if s.client, err = dial(ctx, s.server, f.timeout); err != nil {
			s.client = nil
			return "", err
		}
	}
	if answer, err = question(s.client); err != nil {
		s.client.close()
		s.client = nil
	}
	return answer, err
}

// close ends the connections, when nobody asks any more.
func (s *sentinels) close() {
	s.asked.Wait()
	for _, one := range s.all {
		if one.client != nil {
			one.client.close()
		}
	}
}
