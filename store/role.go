package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// maxHolderName is how many bytes the name of a holder has at most.
const maxHolderName = 100

// Hold has holder, a name of 1 to 100 bytes that no other process has, have each role for a length of time, unless
// another has it. It has a role for longer that it has already, and gives roles back if the length is 0. Then it tells
// answer of each role the store has answered for, who had it before: "" is nobody. Of others nothing is known: they may
// be held or not. A role that the store forgets, as when it restarts without its data, is anybody's.
//
// Hold waits for the store for as long as the longer of [Options.Timeout] and [Options.DialTimeout].
func (s *Store) Hold(holder string, length time.Duration, roles []string, answer func(i int, before string)) {
	if holder == "" || len(holder) > maxHolderName {
		return
	}
	questions := make([]script.Role, len(roles))
	lanes := map[*shard][]*script.Role{}
	for i, role := range roles {
		q := &questions[i]
		q.Key, q.Err = s.options.Prefix+"s1{role:"+role+"}", ErrUnavailable
		if sh := s.main.shardOf(redis.SlotOf([]byte(q.Key))); sh != nil {
			lanes[sh] = append(lanes[sh], q)
		}
	}
	var all sync.WaitGroup
	for sh, mine := range lanes {
		all.Go(func() { sh.holdRoles(holder, int(length.Milliseconds()), mine) })
	}
	all.Wait()
	for i := range questions {
		if q := &questions[i]; q.Err == nil {
			answer(i, q.Before)
		}
	}
}

// holdRoles asks for all roles of the lane, in one write.
func (sh *shard) holdRoles(holder string, milliseconds int, all []*script.Role) {
	sh.mu.Lock()
	c := sh.conn
	sh.mu.Unlock()
	if c == nil {
		return
	}
	// If it fails the prober looks after the connection. Nobody calls it back: requests use it, too.
	_ = sh.guarded(func() error {
		return c.Within(context.Background(), sh.backend.probeTimeout(), func() error { return script.HoldRoles(c, holder, milliseconds, all) })
	})
	for _, q := range all {
		if q.Err == nil || q.Err == ErrUnavailable { //nolint:errorlint // it is what Hold has set
			continue
		}
		sh.options.observe().Failed(string(redis.KindOf(q.Err)))
		if _, elsewhere := sh.redirected(q.Err); elsewhere {
			sh.backend.requestRefresh()
		}
	}
}
