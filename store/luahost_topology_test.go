//go:build more

package store

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// chargeAll charges each of some counters with one hit, and fails unless each had the given number
// before.
func chargeAll(t *testing.T, s *Store, want int) {
	t.Helper()
	var c caller
	for n := range uint64(20) {
		must.OK(t, c.decide(s, oneHit(n+1, hugeFixedWindow)))
		if got := int(c.b.Decisions[0].Before); got != want {
			t.Errorf("counter %d had %d hits, want %d", n+1, got, want)
		}
	}
}

// A store follows a failover. Writes after the snapshot are lost.
func TestLuahostSentinel(t *testing.T) {
	t.Parallel()
	first, second := luahost.NewServer(), luahost.NewServer()
	second.SetRole(luahost.Replica)
	a, b := serveHost(t, listen(t), first.Serve), serveHost(t, listen(t), second.Serve)
	current := make(chan string, 1)
	current <- a
	sentinel := luahost.NewSentinel("main", func() string {
		address := <-current
		current <- address
		return address
	})
	at := serveHost(t, listen(t), sentinel.Serve)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: "main", Master: "main", Sentinels: []string{at}}})
	storetest.Eventually(t, "up", s.Up)
	chargeAll(t, s, 0)
	snapshot := first.Snapshot()
	chargeAll(t, s, 1)
	second.Restore(snapshot)
	first.SetRole(luahost.Replica)
	second.SetRole(luahost.Primary)
	<-current
	current <- b
	storetest.Eventually(t, "the store uses the new primary", func() bool { return s.Up() && second.Commands()["EVALSHA"]+second.Commands()["EVAL"] > 1 })
	chargeAll(t, s, 1)
}
