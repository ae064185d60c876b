package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Sentinels tell of a failover as it goes on. Only the one that leads it tells of the replica that it
// has chosen; the others hear of it when all is over. Whatever one says has all be asked at once.

const (
	switched  = "+switch-master"
	choosing  = "+failover-state-send-slaveof-noone"
	promoting = "+promoted-slave"

	// A replica that was told of is looked at for so long. What makes it a primary takes some milliseconds.
	lookedAt = 5 * time.Second
	// mostHeard is how many messages of one Sentinel are read in a second. A failover has three.
	mostHeard = 64
	// alive is how often a Sentinel is asked whether it is still there.
	alive = 10 * time.Second
)

// listen hears what a Sentinel tells until ctx ends.
func (s *sentinels) listen(ctx context.Context, one *sentinel) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		rest.Reset(look)
		s.fleet.options.guard(func() {
			err := s.hear(ctx, one.server)
			if err == nil || ctx.Err() != nil {
				return
			}
			kind := kindOf(err)
			if kind == Refused { // asking each second does without
				rest.Reset(time.Minute)
			}
			s.fleet.options.observe().Failed(s.fleet.server.String(), kind)
		})
	}
}

// hear hears what a Sentinel tells until the connection or ctx ends.
func (s *sentinels) hear(ctx context.Context, server *Server) error {
	c, err := dial(ctx, server, s.fleet.timeout)
	if err != nil {
		return err
	}
	defer c.close()
	heard, since := 0, clock()
	c.listen(func(r *resp.Reply) error {
		if heard++; heard > mostHeard {
			if clock().Sub(since) < time.Second {
				return &failure{Reply, fmt.Errorf("sentinel %s: more than %d messages in a second", c.address, mostHeard)}
			}
			heard, since = 0, clock()
		}
		s.message(c.address, r)
		return nil
	})
	for _, channel := range []string{switched, choosing, promoting} {
		r, err := c.question(ctx, short, "SUBSCRIBE", channel)
		if err != nil {
			return err
		}
		s.message(c.address, r) // if one came in its place
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.over:
			return c.why()
		case <-tick.C:
			if _, err := c.question(ctx, short, "PING"); err != nil {
				return err
			}
		}
	}
}

// message is what a Sentinel at an address tells: kind, channel and words. Those of a replica are
// `slave name host port @ master host port`.
func (s *sentinels) message(asked string, r *resp.Reply) {
	if r.Kind(0) != resp.Array || r.Len() != 4 || r.Text(1) != "message" {
		return
	}
	words := strings.Fields(r.Text(3))
	if r.Text(2) == switched {
		if len(words) == 5 && words[0] == s.fleet.server.Master {
			s.fleet.ask()
		}
		return
	}
	if len(words) < 6 || words[4] != "@" || words[5] != s.fleet.server.Master {
		return
	}
	address, err := nodeAt(words[2], words[3], asked)
	if err != nil {
		return
	}
	s.mu.Lock()
	if s.next == "" { // one after another, so that none who lies is in the way of others for long
		s.next, s.until = address, clock().Add(lookedAt)
	}
	s.mu.Unlock()
	s.fleet.ask()
}

// promotion finds out whether the replica that was told of has become the primary, though most still say
// that this is at an address, and whether one that has is it still.
func (s *sentinels) promotion(ctx context.Context, address string) error {
	s.mu.Lock()
	next, until, promoted := s.next, s.until, s.promoted
	s.mu.Unlock()
	if promoted != "" {
		if is, err := s.isPrimary(ctx, promoted); err != nil || is {
			return err
		}
		s.mu.Lock()
		s.promoted = ""
		s.mu.Unlock()
	}
	if next == "" {
		return nil
	}
	known, votes, err := s.vote(ctx, func(c *client) (string, error) { return c.replica(ctx, s.fleet.server.Master, next) })
	is := false
	ours := err == nil && known == next && votes > len(s.all)/2 && next != address
	if ours {
		is, err = s.isPrimary(ctx, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case is:
		s.promoted, s.instead, s.next = next, address, ""
	case !ours || err != nil || !clock().Before(until):
		s.next = ""
	default:
		s.fleet.ask() // again, after a rest
	}
	return err
}

// isPrimary asks the server at address whether it is one.
func (s *sentinels) isPrimary(ctx context.Context, address string) (bool, error) {
	c, err := dial(ctx, s.fleet.server.at(address), s.fleet.timeout)
	if err != nil {
		return false, err
	}
	defer c.close()
	r, err := c.question(ctx, roleLimits, "ROLE")
	if err != nil {
		return false, err
	}
	if r.Kind(0) != resp.Array || r.Len() < 2 {
		return false, &failure{Reply, fmt.Errorf("ask %s for its role: %s is none", address, shown(r, 0))}
	}
	return r.Text(1) == "master", nil
}

var (
	// roleLimits are enough for a primary with a hundred replicas, of which ROLE tells, too.
	roleLimits = resp.Limits{Values: 512, Bytes: 16 << 10}
	// replicasLimits are enough for as many, of each of which Sentinel says some fifty things.
	replicasLimits = resp.Limits{Values: 8 << 10, Bytes: 128 << 10}
)

// replica asks a Sentinel whether a replica of master is at address, and returns that if so, and nothing
// otherwise.
func (c *client) replica(ctx context.Context, master, address string) (string, error) {
	r, err := c.question(ctx, replicasLimits, "SENTINEL", "REPLICAS", master)
	if err != nil {
		return "", err
	}
	if r.Kind(0) != resp.Array {
		return "", errors.New("no list of replicas")
	}
	for i := 1; i < r.Len(); i = r.After(i) {
		host, port := "", ""
		for k := i + 1; k+1 < r.After(i); k += 2 {
			switch r.Text(k) {
			case "ip":
				host = r.Text(k + 1)
			case "port":
				port = r.Text(k + 1)
			}
		}
		if at, err := nodeAt(host, port, ""); err == nil && at == address {
			return address, nil
		}
	}
	return "", nil
}
