//go:build more

package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// The identity of a server's data is the same over several connections, until the server follows
// another primary, or starts again.
func TestDataID(t *testing.T) {
	a, b := storetest.Start(t), storetest.Start(t)
	idOf := func(s *storetest.Server) string {
		server := serverAt(s)
		c, err := redis.Dial(t.Context(), &server, time.Minute)
		must.OK(t, err)
		defer c.Close()
		id, err := c.DataID(t.Context())
		must.OK(t, err)
		return id
	}
	first := idOf(a)
	if len(first) < 80 || idOf(a) != first || idOf(b) == first {
		t.Fatalf("one server: %q, then %q; another one: %q", first, idOf(a), idOf(b))
	}
	a.Must("REPLICAOF", "127.0.0.1", b.Port())
	storetest.Eventually(t, "the replica has the data of the other server", func() bool { return idOf(a) != first })
	a.Must("REPLICAOF", "NO", "ONE")
	if id := idOf(a); id == first || id == idOf(b) {
		t.Errorf("after it was a replica: %q, want neither %q nor %q", id, first, idOf(b))
	}
}
