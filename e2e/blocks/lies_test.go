package blocks_test

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestLiesAboutReplicas has another program write the key that counts replicas. Limits stay exact,
// and replicas still use blocks, unless the key has very many replicas.
func TestLiesAboutReplicas(t *testing.T) {
	t.Parallel()
	const key = "s1{replicas}"
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), tenants, suite.Patience, patient...)
	f.load(t, 2)
	many := []string{"ZADD", key}
	for i := range 10_000 {
		many = append(many, "99999999999999", strconv.Itoa(i))
	}
	for name, command := range map[string][]string{
		"none":         {"DEL", key},
		"another type": {"SET", key, "\x00garbage"},
		"infinite":     {"ZADD", key, "-inf", "a", "+inf", "b"},
		"many":         many,
	} {
		store.Must("DEL", key)
		store.Must(command...)
		l := f.ledgers[0]
		requests, acquired, window := f.requests.Load(), f.acquired(t), l.window(time.Now())
		suite.Eventually(t, name+": requests are answered, and blocks acquired, for a window", func() bool {
			return f.requests.Load() > requests+1000 && l.window(time.Now()) > window &&
				(name == "many" || f.acquired(t) > acquired) // the share of one of many replicas is no block
		})
	}
	f.stop()
	f.verify(t, f.exact)
	if n := f.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// acquired returns the hits of all blocks that a replica has acquired.
func (f *fleet) acquired(t *testing.T) float64 {
	t.Helper()
	return suite.Metrics(t, f.sluices[0].Load()).Sum("sluice_store_block_hits_total", `result="acquired"`)
}

// integers matches numbers in replies of the store.
var integers = regexp.MustCompile(`(?m)^:-?[0-9]+\r`)

// lies are the numbers and texts that a store claims instead of its own.
var lies = []string{
	":0\r", ":-1\r", ":-99999\r", ":1000000\r", ":9223372036854775807\r", ":-9223372036854775808\r", ":99999999999999999999\r", ":garbage\r", "$-1\r",
}

// TestLyingStore has a store send wrong numbers to all replicas. They answer requests, and as soon
// as the store is honest again, limits are exact.
func TestLyingStore(t *testing.T) {
	t.Parallel()
	f := startFaults(t, "deny")
	f.load(t, 2)
	start := time.Now()
	for _, lie := range lies {
		for _, l := range f.links {
			l.lie(func(reply []byte) []byte {
				return integers.ReplaceAllFunc(reply, func(n []byte) []byte {
					if rand.IntN(4) > 0 {
						return n
					}
					return []byte(lie)
				})
			})
		}
		before := f.requests.Load()
		suite.Eventually(t, "replicas answer", func() bool { return f.requests.Load() > before+1000 })
	}
	for _, l := range f.links {
		l.lie(nil)
		l.cut()
	}
	end := time.Now()
	f.await(t, 2)
	f.stop()
	f.verify(t, func(i int, window int64) int {
		if l := f.ledgers[i]; l.window(start) <= window && window <= l.window(end) {
			return 1e9
		}
		return f.tenants[i].limit
	})
}
