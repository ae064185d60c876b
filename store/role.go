package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// maxHolderName is the maximum length of the name of a holder in bytes.
const maxHolderName = 100

// AcquireLeadership acquires or renews each role for holder, unless another holder has it. holder
// is a name of 1 to 100 bytes that identifies this process. A renewal never shortens a role. A
// length of 0 releases the roles.
//
// answer is called for each role for which the store has replied, with the previous holder, or ""
// if there was none. If it is not called, the state of the role is unknown. If the store loses a
// role, as in a restart without its data, any holder can acquire it.
//
// AcquireLeadership waits at most for the longer of [Options.Timeout] and [Options.DialTimeout].
func (s *Store) AcquireLeadership(holder string, length time.Duration, roles []string, answer func(i int, before string)) {
	if holder == "" || len(holder) > maxHolderName {
		return
	}
	queries := make([]script.Role, len(roles))
	byShard := map[*shard][]*script.Role{}
	for i, role := range roles {
		q := &queries[i]
		q.Key, q.Err = s.options.Prefix+"s1{role:"+role+"}", ErrUnavailable
		if sh := s.main.shardOf(redis.SlotOf([]byte(q.Key))); sh != nil {
			byShard[sh] = append(byShard[sh], q)
		}
	}
	var all sync.WaitGroup
	for sh, mine := range byShard {
		all.Go(func() { sh.acquireRoles(holder, int(length.Milliseconds()), mine) })
	}
	all.Wait()
	for i := range queries {
		if q := &queries[i]; q.Err == nil {
			answer(i, q.Before)
		}
	}
}

// acquireRoles sends all roles of the shard in one write.
func (sh *shard) acquireRoles(holder string, milliseconds int, all []*script.Role) {
	sh.mu.Lock()
	c := sh.conn
	sh.mu.Unlock()
	if c == nil {
		return
	}
	// If it fails the prober handles the connection, which requests use, too.
	_ = sh.guarded(func() error {
		return c.Within(context.Background(), sh.backend.probeTimeout(), func() error { return script.AcquireRoles(c, holder, milliseconds, all) })
	})
	for _, q := range all {
		if q.Err == nil || errors.Is(q.Err, ErrUnavailable) { // set by AcquireLeadership
			continue
		}
		sh.options.observe().Failed(string(redis.KindOf(q.Err)))
		if _, elsewhere := sh.redirected(q.Err); elsewhere {
			sh.backend.requestRefresh()
		}
	}
}
