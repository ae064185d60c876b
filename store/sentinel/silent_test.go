package sentinel_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/sentinel"
)

// Queries of a silent Sentinel do not accumulate: one connects, and the others wait for it no longer
// than the timeout.
func TestSilentSentinel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		dials := 0
		s := sentinel.New(sentinel.Options{
			Server: &redis.Server{Master: "main", Sentinels: []string{"silent:26379"}, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials++
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			Timeout: timeout,
			Address: func() string { return "" },
			Guard:   func(do func()) bool { do(); return true },
		})
		for range 20 {
			go func() {
				if address, err := s.Primary(context.Background()); err == nil {
					t.Errorf("a silent Sentinel names %s", address)
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		s.Close() // waits for the queries
		if took := time.Since(began); took > 2*timeout || dials > 2 {
			t.Errorf("20 queries ended after %v and %d dials, want at most %v and 2 dials", took, dials, 2*timeout)
		}
	})
}
