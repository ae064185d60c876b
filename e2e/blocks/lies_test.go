package blocks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
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

var (
	// seconds matches the seconds of times in replies of the store.
	seconds = regexp.MustCompile(`(?m)^:1[0-9]{9}\r`)
	// rings matches binary strings in replies of the store.
	rings = regexp.MustCompile(`(?s-m)\$(?:16|20|28|36|44|52)\r\n.{16}`)
)

// falsehoods change replies of the store.
var falsehoods = map[string]func(reply []byte) []byte{
	"a TAT or a time in the past":   func(reply []byte) []byte { return seconds.ReplaceAll(reply, []byte(":1000000000\r")) },
	"a TAT or a time in the future": func(reply []byte) []byte { return seconds.ReplaceAll(reply, []byte(":9999999999\r")) },
	"a TAT or a time of any second": func(reply []byte) []byte {
		return seconds.ReplaceAllFunc(reply, func(n []byte) []byte {
			return append(n[:len(n)-3:len(n)-3], []byte(fmt.Sprintf("%02d\r", rand.IntN(100)))...)
		})
	},
	"any number": func(reply []byte) []byte {
		return integers.ReplaceAllFunc(reply, func([]byte) []byte {
			return fmt.Appendf(nil, ":%d\r", rand.Int64N(math.MaxInt64)>>rand.IntN(63)-int64(rand.IntN(3)))
		})
	},
	"another ring": func(reply []byte) []byte {
		return rings.ReplaceAllFunc(reply, func(ring []byte) []byte {
			head := strings.IndexByte(string(ring), '\n') + 1
			for i := head + 8*rand.IntN(2); i < len(ring); i++ {
				ring[i] = byte(rand.IntN(256) * rand.IntN(2))
			}
			return ring
		})
	},
	"an empty ring":     func(reply []byte) []byte { return rings.ReplaceAll(reply, []byte("$0\r\n")) },
	"a lost reply":      func([]byte) []byte { return nil },
	"a repeated reply":  func(reply []byte) []byte { return append(reply, reply...) },
	"a truncated reply": func(reply []byte) []byte { return reply[:rand.IntN(len(reply))] },
}

// TestMixedLies has a store send false replies to all replicas, every fourth. They answer requests,
// and as soon as the store is honest again, limits are exact.
func TestMixedLies(t *testing.T) {
	t.Parallel()
	m, links := startMixWithLinks(t, "deny")
	from := m.now()
	for range times(t, 1, 5) {
		for name, falsehood := range falsehoods {
			for _, l := range links {
				l.lie(func(reply []byte) []byte {
					if rand.IntN(4) > 0 {
						return reply
					}
					return falsehood(reply)
				})
			}
			before := m.requests.Load()
			suite.Eventually(t, name+": replicas answer", func() bool {
				together(m.some(3), func(which int) { m.trickle(t.Context(), rand.IntN(3), which, 100*time.Millisecond) })
				together(m.some(3), func(which int) { m.burst(t.Context(), which, 0, 1, 2) })
				return m.requests.Load() > before+100
			})
		}
	}
	for _, l := range links {
		l.lie(nil)
		l.cut()
	}
	to := m.now()
	for _, all := range m.counters {
		for _, c := range all {
			c.extra = append(c.extra, span{from, to + int64(c.blockLife()), 1e12})
		}
	}
	before := m.requests.Load()
	together(m.some(len(clients)), func(which int) {
		start, _ := m.counters[which][0].used()
		suite.Eventually(t, m.clients[which].name+" is admitted by an honest store", func() bool {
			m.trickle(t.Context(), 0, which, 300*time.Millisecond)
			m.burst(t.Context(), which, 1, 2)
			m.burst(t.Context(), which, 0)
			admitted, _ := m.counters[which][0].used()
			if admitted <= start { // with count_refused, a client that never pauses is never admitted
				wait(t.Context(), 2*m.counters[which][0].window)
			}
			return admitted > start
		})
	})
	m.verify(t, 1)
	t.Logf("%d requests answered, %d after the lies, %d without an answer", m.requests.Load(), m.requests.Load()-before, m.failed.Load())
}
