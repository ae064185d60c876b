//go:build more

package store

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// If a primary is replaced after a crash or a requested failover, the store switches to the new
// primary by itself, and counters are kept.
func TestSentinel(t *testing.T) {
	t.Parallel() // mostly waits for Sentinels
	for name, replace := range map[string]func(t *testing.T, primary *storetest.Server, sentinels []*storetest.Server){
		"killed": func(_ *testing.T, primary *storetest.Server, sentinels []*storetest.Server) {
			primary.Kill()
			storetest.EnableSentinelFailover(sentinels)
		},
		"asked": func(t *testing.T, _ *storetest.Server, sentinels []*storetest.Server) {
			t.Helper()
			storetest.Eventually(t, "failover begins", func() bool {
				_, err := sentinels[0].Command("SENTINEL", "FAILOVER", "main")
				return err == nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := storetest.Start(t)
			replica := storetest.StartReplica(t, primary)
			sentinels := storetest.StartSentinels(t, primary, 1, 3)
			to := redis.Server{Master: "main"}
			for _, s := range sentinels {
				to.Sentinels = append(to.Sentinels, s.Addr)
			}
			o := &recorder{}
			s := runStore(t, Options{Server: to, Observer: o})
			storetest.Eventually(t, "up", s.Up)
			var c caller
			once := oneHit(99, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: limiter.MaxWindow})
			if err := c.decide(s, once); err != nil || c.b.Denied {
				t.Fatal(err, c.b.Denied)
			}
			storetest.Eventually(t, "the replica has the counter", func() bool { return replica.Must("EVAL", oneCounter, "0") == "1" })
			startLoad(t, s, hugeBucket, 0)
			replace(t, primary, sentinels)
			storetest.Eventually(t, "the replica is used", func() bool {
				return s.Up() && s.main.shardOf(0).address() == replica.Addr
			})
			o.mu.Lock()
			before := o.decided[byStore]
			o.mu.Unlock()
			storetest.Eventually(t, "the store decides again", func() bool {
				o.mu.Lock()
				defer o.mu.Unlock()
				return o.decided[byStore] > before
			})
			if err := c.decide(s, once); err != nil || !c.b.Denied {
				t.Errorf("the counter was lost: %+v, %v", c.b.Decisions, err)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			t.Logf("%d charges decided by the store, %d by the fallback", o.decided[byStore], o.decided[byFallback])
			if o.diverged > 0 {
				t.Errorf("%d replies diverged", o.diverged)
			}
		})
	}
}

// oneCounter is a script that counts the keys of the counter 99.
const oneCounter = `return #redis.call('KEYS', 's1{99}*')`

// Isolated Sentinels that still name an old primary are outvoted.
func TestSentinelsVote(t *testing.T) {
	t.Parallel()
	old, now := storetest.Start(t), storetest.Start(t)
	to := redis.Server{Master: "main"}
	for _, s := range storetest.StartSentinels(t, old, 0, 1) {
		to.Sentinels = append(to.Sentinels, s.Addr)
	}
	for _, s := range storetest.StartSentinels(t, now, 0, 2) {
		to.Sentinels = append(to.Sentinels, s.Addr)
	}
	s := runStore(t, Options{Server: to})
	storetest.Eventually(t, "up", s.Up)
	if at := s.main.shardOf(0).address(); at != now.Addr {
		t.Errorf("the store uses %s, want %s, which most Sentinels name", at, now.Addr)
	}
}
