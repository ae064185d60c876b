package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// maxCandidateName is the maximum length of the name of a candidate in bytes.
const maxCandidateName = 100

// AcquireLeadership makes candidate the leader of each domain for ttl unless it has another leader,
// and renews the leaderships that candidate has, even if ttl is shorter than the remaining time. A
// ttl of 0 releases them. The name of a candidate has 1 to 100 bytes, and no other process has the
// same name.
//
// report is called for each domain for which the store has replied, with the previous leader, or ""
// if there was none. If it is not called for a domain, the leader is unknown. If the store loses a
// leadership, as in a restart without its data, any candidate can acquire it.
//
// AcquireLeadership waits at most for the longer of [Options.Timeout] and [Options.DialTimeout].
func (s *Store) AcquireLeadership(candidate string, ttl time.Duration, domains []string, report func(
	i int, previous string,
),
) {
	if candidate == "" || len(candidate) > maxCandidateName {
		return
	}
	all := make([]script.Leadership, len(domains))
	byShard := map[*shard][]*script.Leadership{}
	for i, domain := range domains {
		l := &all[i]
		l.Key = s.options.Prefix + "s1{role:" + domain + "}"
		l.Err = ErrUnavailable
		if sh := s.main.shardOf(redis.SlotOf([]byte(l.Key))); sh != nil {
			byShard[sh] = append(byShard[sh], l)
		}
	}
	var pending sync.WaitGroup
	for sh, leaderships := range byShard {
		pending.Go(func() { sh.acquireLeaderships(candidate, int(ttl.Milliseconds()), leaderships) })
	}
	pending.Wait()
	for i := range all {
		if l := &all[i]; l.Err == nil {
			report(i, l.Previous)
		}
	}
}

// acquireLeaderships sends the requests for all leaderships of the shard in one write.
func (sh *shard) acquireLeaderships(candidate string, milliseconds int, all []*script.Leadership) {
	sh.mu.Lock()
	c := sh.conn
	sh.mu.Unlock()
	if c == nil {
		return
	}
	// If it fails, the prober handles the connection, which requests also use.
	_ = sh.guarded(func() error {
		return c.Within(context.Background(), sh.backend.probeTimeout(),
			func() error { return script.AcquireLeaderships(c, candidate, milliseconds, all) })
	})
	for _, l := range all {
		if l.Err == nil || errors.Is(l.Err, ErrUnavailable) { // set by AcquireLeadership
			continue
		}
		sh.options.observe().Failed(string(redis.KindOf(l.Err)))
		if _, elsewhere := sh.redirected(l.Err); elsewhere {
			sh.backend.requestRefresh()
		}
	}
}
