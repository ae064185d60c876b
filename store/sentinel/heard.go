package sentinel

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Sentinels tell of a failover as it goes on. Only the one that leads it tells of the replica that it
// has chosen; the others hear of it when all is over. Whatever one says has all be asked at once.

// The channels that Sentinels tell of a failover on: that it is over, and of the replica that was chosen or has taken over.
// The channels that Sentinels tell of a failover on: that it is over, and of the replica that was chosen or has taken over.
const (
	Switched  = "+switch-master"
	Choosing  = "+failover-state-send-slaveof-noone"
	Promoting = "+promoted-slave"

	// A replica that was told of is looked at for so long. What makes it a primary takes some milliseconds.
	candidateFor = 5 * time.Second
	// maxMessages is how many messages of one Sentinel are read in a second. A failover has three.
	maxMessages = 64
	// reconnectAfter is how long after a connection the next is made.
	reconnectAfter = time.Second
	// pingInterval is how often a Sentinel is asked whether it is still there.
	pingInterval = 10 * time.Second
)

// listen hears what a Sentinel tells until ctx ends.
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
			if kind == redis.Refused { // asking each second does without
				rest.Reset(time.Minute)
			}
			s.options.Failed(kind)
		})
	}
}

// subscribe hears what a Sentinel tells until the connection or ctx ends.
func (s *Watch) subscribe(ctx context.Context, server *redis.Server) error {
	c, err := redis.Dial(ctx, server, s.options.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	heard, since := 0, clock()
	c.Listen(func(r *resp.Reply) error {
		if heard++; heard > maxMessages {
			if clock().Sub(since) < time.Second {
				return redis.BadReply("sentinel %s: more than %d messages in a second", c.Address, maxMessages)
			}
			heard, since = 0, clock()
		}
		s.HandleMessage(c.Address, r)
		return nil
	})
	for _, channel := range []string{Switched, Choosing, Promoting} {
		r, err := c.Query(ctx, redis.ShortReply, "SUBSCRIBE", channel)
		if err != nil {
			return err
		}
		s.HandleMessage(c.Address, r) // if one came in its place
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

// HandleMessage is what a Sentinel at an address tells: kind, channel and fields. Those of a replica are
// `slave name host port @ master host port`.
func (s *Watch) HandleMessage(asked string, r *resp.Reply) {
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
	address, err := redis.NodeAt(fields[2], fields[3], asked)
	if err != nil {
		return
	}
	s.mu.Lock()
	if s.Candidate == "" { // one after another, so that none who lies is in the way of others for long
		s.Candidate, s.CandidateUntil = address, clock().Add(candidateFor)
	}
	s.mu.Unlock()
	s.options.Refresh()
}

// CheckPromotion finds out whether the replica that was told of has become the primary, though most still say
// that this is at an address, and whether one that has is it still.
func (s *Watch) CheckPromotion(ctx context.Context, address string) error {
	s.mu.Lock()
	next, until, promoted := s.Candidate, s.CandidateUntil, s.promoted
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
	known, votes, err := s.vote(ctx, func(c *redis.Conn) (string, error) { return c.Replica(ctx, s.options.Server.Master, next) })
	is := false
	ours := err == nil && known == next && votes > len(s.all)/2 && next != address
	if ours {
		is, err = s.isPrimary(ctx, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case is:
		s.promoted, s.replaced, s.Candidate = next, address, ""
	case !ours || err != nil || !clock().Before(until):
		s.Candidate = ""
	default:
		s.options.Refresh() // again, after a rest
	}
	return err
}

// isPrimary asks the server at address whether it is one.
func (s *Watch) isPrimary(ctx context.Context, address string) (bool, error) {
	c, err := redis.Dial(ctx, s.options.Server.At(address), s.options.Timeout)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.IsPrimary(ctx)
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // how long Sentinels take
