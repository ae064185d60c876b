package sentinel

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Sentinels publish the progress of a failover. Only the one that leads it publishes the chosen
// replica; the others learn of it at the end. Any message makes the Watch query all of them at
// once.

// The channels for the end of a failover, and for the replica that was chosen or has been promoted.
const (
	Switched  = "+switch-master"
	Choosing  = "+failover-state-send-slaveof-noone"
	Promoting = "+promoted-slave"

	// candidateFor is how long a replica that was named is checked. A promotion takes some
	// milliseconds.
	candidateFor = 5 * time.Second
	// unconfirmedFor is how long a promoted replica that cannot be reached counts as the primary. It
	// may have failed before the Sentinels agreed on it.
	unconfirmedFor = 5 * time.Second
	// maxMessages is the maximum number of messages of one Sentinel in a second. A failover has
	// three.
	maxMessages = 64
	// reconnectAfter is the minimum time between two connections to a Sentinel.
	reconnectAfter = time.Second
	// pingInterval is how often a Sentinel is pinged.
	pingInterval = 10 * time.Second
)

// listen subscribes to a Sentinel, again after each error, until ctx ends.
func (s *Watch) listen(ctx context.Context, one *sentinel) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		rest.Reset(reconnectAfter)
		s.options.Guard(func() {
			err := s.subscribe(ctx, one.server)
			if err == nil || ctx.Err() != nil {
				return
			}
			kind := redis.KindOf(err)
			if kind == redis.Refused { // the periodic query works without subscribing
				rest.Reset(time.Minute)
			}
			s.options.Failed(kind)
		})
	}
}

// subscribe reads messages of a Sentinel until the connection or ctx ends.
func (s *Watch) subscribe(ctx context.Context, server *redis.Server) error {
	c, err := redis.Dial(ctx, server, s.options.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	messages := 0
	since := clock()
	c.Listen(func(r *resp.Reply) error {
		if messages++; messages > maxMessages {
			if clock().Sub(since) < time.Second {
				return redis.BadReply("sentinel %s: more than %d messages in a second", c.Address, maxMessages)
			}
			messages = 0
			since = clock()
		}
		s.HandleMessage(c.Address, r)
		return nil
	})
	for _, channel := range []string{Switched, Choosing, Promoting} {
		r, err := c.Query(ctx, redis.ShortReply, "SUBSCRIBE", channel)
		if err != nil {
			return err
		}
		s.HandleMessage(c.Address, r) // a message may have come first
	}
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done:
			return c.Err()
		case <-tick.C:
			if _, err := c.Query(ctx, redis.ShortReply, "PING"); err != nil {
				return err
			}
		}
	}
}

// HandleMessage handles a message of the Sentinel at the address sender: kind, channel and fields.
// The fields of a replica are `slave name host port @ master host port`.
func (s *Watch) HandleMessage(sender string, r *resp.Reply) {
	if r.Kind(0) != resp.Array || r.Len() != 4 || r.Text(1) != "message" {
		return
	}
	fields := strings.Fields(r.Text(3))
	if r.Text(2) == Switched {
		if len(fields) == 5 && fields[0] == s.options.Server.Master {
			s.options.Refresh()
		}
		return
	}
	if len(fields) < 6 || fields[4] != "@" || fields[5] != s.options.Server.Master {
		return
	}
	address, err := redis.NodeAt(fields[2], fields[3], sender)
	if err != nil {
		return
	}
	s.mu.Lock()
	if s.Candidate == "" { // one at a time, so that a malicious Sentinel does not block the others for long
		s.Candidate = address
		s.CandidateUntil = clock().Add(candidateFor)
	}
	s.mu.Unlock()
	s.options.Refresh()
}

// CheckPromotion checks whether the candidate has become the primary, though most Sentinels still
// name the given address, and whether a promoted replica is still the primary.
func (s *Watch) CheckPromotion(ctx context.Context, address string) error {
	s.mu.Lock()
	next := s.Candidate
	until := s.CandidateUntil
	promoted := s.promoted
	s.mu.Unlock()
	if promoted != "" {
		isPrimary, err := s.isPrimary(ctx, promoted)
		s.mu.Lock()
		switch {
		case isPrimary:
			s.confirmed = clock()
		case err == nil, clock().Sub(s.confirmed) > unconfirmedFor:
			s.promoted = ""
		}
		s.mu.Unlock()
		if err != nil || isPrimary {
			return err
		}
	}
	if next == "" {
		return nil
	}
	known, votes, err := s.vote(ctx,
		func(c *redis.Conn) (string, error) { return c.Replica(ctx, s.options.Server.Master, next) })
	isPrimary := false
	ours := err == nil && known == next && votes > len(s.all)/2 && next != address
	if ours {
		isPrimary, err = s.isPrimary(ctx, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isPrimary:
		s.promoted = next
		s.replaced = address
		s.Candidate = ""
		s.confirmed = clock()
	case !ours || err != nil || !clock().Before(until):
		s.Candidate = ""
	default:
		s.options.Refresh() // check again soon
	}
	return err
}

// isPrimary reports whether the server at an address claims to be a primary.
func (s *Watch) isPrimary(ctx context.Context, address string) (bool, error) {
	c, err := redis.Dial(ctx, s.options.Server.At(address), s.options.Timeout)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.IsPrimary(ctx)
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // how long Sentinels take
