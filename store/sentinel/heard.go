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
	lookedAt = 5 * time.Second
	// mostHeard is how many messages of one Sentinel are read in a second. A failover has three.
	mostHeard = 64
	// listenAgain is how long after a connection the next is made.
	listenAgain = time.Second
	// alive is how often a Sentinel is asked whether it is still there.
	alive = 10 * time.Second
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
		rest.Reset(listenAgain)
		s.home.Guard(func() {
			err := s.hear(ctx, one.server)
			if err == nil || ctx.Err() != nil {
				return
			}
			kind := redis.KindOf(err)
			if kind == redis.Refused { // asking each second does without
				rest.Reset(time.Minute)
			}
			s.home.Failed(kind)
		})
	}
}

// hear hears what a Sentinel tells until the connection or ctx ends.
func (s *Watch) hear(ctx context.Context, server *redis.Server) error {
	c, err := redis.Dial(ctx, server, s.home.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	heard, since := 0, clock()
	c.Listen(func(r *resp.Reply) error {
		if heard++; heard > mostHeard {
			if clock().Sub(since) < time.Second {
				return redis.BadReply("sentinel %s: more than %d messages in a second", c.Address, mostHeard)
			}
			heard, since = 0, clock()
		}
		s.Message(c.Address, r)
		return nil
	})
	for _, channel := range []string{Switched, Choosing, Promoting} {
		r, err := c.Question(ctx, redis.Short, "SUBSCRIBE", channel)
		if err != nil {
			return err
		}
		s.Message(c.Address, r) // if one came in its place
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Over:
			return c.Why()
		case <-tick.C:
			if _, err := c.Question(ctx, redis.Short, "PING"); err != nil {
				return err
			}
		}
	}
}

// Message is what a Sentinel at an address tells: kind, channel and fields. Those of a replica are
// `slave name host port @ master host port`.
func (s *Watch) Message(asked string, r *resp.Reply) {
	if r.Kind(0) != resp.Array || r.Len() != 4 || r.Text(1) != "message" {
		return
	}
	fields := strings.Fields(r.Text(3))
	if r.Text(2) == Switched {
		if len(fields) == 5 && fields[0] == s.home.Server.Master {
			s.home.Again()
		}
		return
	}
	if len(fields) < 6 || fields[4] != "@" || fields[5] != s.home.Server.Master {
		return
	}
	address, err := redis.NodeAt(fields[2], fields[3], asked)
	if err != nil {
		return
	}
	s.mu.Lock()
	if s.Next == "" { // one after another, so that none who lies is in the way of others for long
		s.Next, s.Until = address, clock().Add(lookedAt)
	}
	s.mu.Unlock()
	s.home.Again()
}

// Promotion finds out whether the replica that was told of has become the primary, though most still say
// that this is at an address, and whether one that has is it still.
func (s *Watch) Promotion(ctx context.Context, address string) error {
	s.mu.Lock()
	next, until, promoted := s.Next, s.Until, s.promoted
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
	known, votes, err := s.vote(ctx, func(c *redis.Conn) (string, error) { return c.Replica(ctx, s.home.Server.Master, next) })
	is := false
	ours := err == nil && known == next && votes > len(s.all)/2 && next != address
	if ours {
		is, err = s.isPrimary(ctx, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case is:
		s.promoted, s.instead, s.Next = next, address, ""
	case !ours || err != nil || !clock().Before(until):
		s.Next = ""
	default:
		s.home.Again() // again, after a rest
	}
	return err
}

// isPrimary asks the server at address whether it is one.
func (s *Watch) isPrimary(ctx context.Context, address string) (bool, error) {
	c, err := redis.Dial(ctx, s.home.Server.At(address), s.home.Timeout)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.IsPrimary(ctx)
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // how long Sentinels take
