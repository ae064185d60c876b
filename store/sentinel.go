package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Sentinels know where a primary is. One of them may lag behind, or be cut off together with a
// primary of yesterday, so all are asked, and what most of those say that answer holds.
type sentinels struct {
	fleet *fleet
	all   []*sentinel
	asked sync.WaitGroup
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
	if address, err := s.primary(ctx); err == nil {
		s.fleet.lane(0).leave(address)
	}
}

// primary returns the address that most know, as soon as more than half of all say so.
func (s *sentinels) primary(ctx context.Context) (string, error) {
	type answer struct {
		address string
		err     error
	}
	answers := make(chan answer, len(s.all))
	for _, one := range s.all {
		s.asked.Go(func() {
			a := answer{err: errPanicked}
			s.fleet.options.guard(func() { a.address, a.err = one.ask(ctx, s.fleet) })
			answers <- a
		})
	}
	votes, best := map[string]int{}, ""
	var errs []error
	for range s.all {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		if votes[a.address]++; votes[a.address] > votes[best] {
			best = a.address
		}
		if votes[best] > len(s.all)/2 {
			break
		}
	}
	if best == "" {
		return "", &failure{kindOf(errs[0]), fmt.Errorf("ask Sentinel for the primary: %w", errors.Join(errs...))}
	}
	return best, nil
}

// ask asks one, on the connection that there is, or on a new one.
func (s *sentinel) ask(ctx context.Context, f *fleet) (address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		if s.client, err = dial(ctx, s.server, f.timeout); err != nil {
			s.client = nil
			return "", err
		}
	}
	if address, err = s.client.primary(ctx, f.server.Master); err != nil {
		s.client.close()
		s.client = nil
	}
	return address, err
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
