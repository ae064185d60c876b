package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// TestStartWaitsForTheStore verifies how long the start waits for the first reply of the store, and
// which lines it logs.
func TestStartWaitsForTheStore(t *testing.T) {
	const never = time.Hour
	for name, tt := range map[string]struct {
		answers, signal time.Duration // after the start
		mode            error
		waits           time.Duration
		logs            []string
	}{
		"a healthy store":  {answers: 10 * time.Millisecond, signal: never, waits: 10 * time.Millisecond},
		"a slow store":     {answers: DefaultStoreStartTimeout - time.Millisecond, signal: never, waits: DefaultStoreStartTimeout - time.Millisecond},
		"a late store":     {answers: 3 * time.Second, signal: never, waits: DefaultStoreStartTimeout, logs: []string{"warn", "info"}},
		"no store":         {answers: never, signal: time.Minute, waits: DefaultStoreStartTimeout, logs: []string{"warn"}},
		"another mode":     {answers: never, signal: time.Minute, mode: errors.New("a node of a cluster"), waits: 0},
		"an early SIGTERM": {answers: never, signal: 300 * time.Millisecond, waits: 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			ctx, cancel := context.WithTimeout(t.Context(), tt.signal)
			defer cancel()
			began := time.Now()
			group, ctx := errgroup.WithContext(ctx)
			d := &Daemon{Logger: zap.New(core), startTimeout: DefaultStoreStartTimeout, fallback: store.Deny}
			if err := d.awaitStore(ctx, group, &laterStore{began.Add(tt.answers), tt.mode}); !errors.Is(err, tt.mode) {
				t.Errorf("%s: the error is %v, want %v", name, err, tt.mode)
			}
			if waited := time.Since(began); waited != tt.waits {
				t.Errorf("%s: the start waited for %v, want %v", name, waited, tt.waits)
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			lines := logs.All()
			if len(lines) != len(tt.logs) {
				t.Fatalf("%s: %d lines, want %v: %v", name, len(lines), tt.logs, lines)
			}
			for i, line := range lines {
				if line.Level.String() != tt.logs[i] {
					t.Errorf("%s: line %d is %v, want level %s", name, i, line, tt.logs[i])
				}
			}
			if fields := logs.FilterField(zap.String("fallback", "deny")).Len(); len(tt.logs) > 0 && fields != 1 {
				t.Errorf("%s: %d lines name the fallback, want one", name, fields)
			}
		})
	}
}

// A laterStore answers at a time, or has the wrong mode.
type laterStore struct {
	at   time.Time
	mode error
}

func (s *laterStore) WrongMode() error { return s.mode }

func (s *laterStore) Await(ctx context.Context) bool {
	if s.mode != nil {
		return false
	}
	select {
	case <-time.After(time.Until(s.at)):
		return true
	case <-ctx.Done():
		return false
	}
}

// TestConditionsOfTheStore uses two unavailable primaries: one recovers, and the other loses its
// slots.
func TestConditionsOfTheStore(t *testing.T) {
	metrics := servertest.Metrics(t)
	log := storeLog(store.Local, metrics.Events.Watch(zap.NewNop()))
	log.Unavailable("a:1", redis.Kinds[0], errors.New("refused"), "")
	log.Unavailable("b:1", redis.Kinds[0], errors.New("refused"), "start it")
	servertest.ExpectConditions(t, metrics, "both", "store_unavailable store_unavailable")
	log.Recovered("a:1", time.Second, store.Synced{})
	if active := metrics.Conditions.Active(time.Now()); len(active) != 1 || active[0].Remedy != "start it" || active[0].Fields["store"] != "b:1" {
		t.Errorf("the conditions are %+v, want the second store", active)
	}
	log.Replaced("b:1")
	servertest.ExpectConditions(t, metrics, "replaced", "")
	log.NotReached("a:1", redis.Kinds[0], errors.New("refused"), "")
	servertest.ExpectConditions(t, metrics, "never reached", "store_not_reached")
	log.Recovered("a:1", time.Second, store.Synced{})
	servertest.ExpectConditions(t, metrics, "reached", "")
}
