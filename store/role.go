package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// mostHolder is how many bytes the name of a holder has at most.
const mostHolder = 100

// AcquireLeadership has holder, a name of 1 to 100 bytes that no other process has, have each role for a length of time, unless
// another has it. It has a role for longer that it has already, and gives roles back if the length is 0. Then it tells
// answer of each role the store has answered for, who had it before: "" is nobody. Of others nothing is known: they may
// be held or not. A role that the store forgets, as when it restarts without its data, is anybody's.
//
// Hold waits for the store for as long as the longer of [Options.Timeout] and [Options.DialTimeout].
func (s *Store) AcquireLeadership(holder string, length time.Duration, roles []string, answer func(i int, before string)) {
	if holder == "" || len(holder) > mostHolder {
		return
	}
	questions := make([]script.Role, len(roles))
	lanes := map[*lane][]*script.Role{}
	for i, role := range roles {
		q := &questions[i]
		q.Key, q.Err = s.options.Prefix+"s1{role:"+role+"}", ErrAway
		if l := s.fleet.lane(redis.SlotOf([]byte(q.Key))); l != nil {
			lanes[l] = append(lanes[l], q)
		}
	}
	var all sync.WaitGroup
	for l, mine := range lanes {
		all.Go(func() { l.hold(holder, int(length.Milliseconds()), mine) })
	}
	all.Wait()
	for i := range questions {
		if q := &questions[i]; q.Err == nil {
			answer(i, q.Before)
		}
	}
}

// hold asks for all roles of the lane, in one write.
func (l *lane) hold(holder string, milliseconds int, all []*script.Role) {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	if c == nil {
		return
	}
	// If it fails the prober looks after the connection. Nobody calls it back: requests use it, too.
	_ = l.guarded(func() error {
		return c.Within(context.Background(), l.fleet.patience(), func() error { return script.Hold(c, holder, milliseconds, all) })
	})
	for _, q := range all {
		if q.Err == nil || q.Err == ErrAway { //nolint:errorlint // it is what Hold has set
			continue
		}
		l.options.observe().Failed(string(redis.KindOf(q.Err)))
		if _, elsewhere := l.redirected(q.Err); elsewhere {
			l.fleet.ask()
		}
	}
}
