//go:build more

package store

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A movingSlot is a slot that moves between two nodes of a cluster, step by step.
type movingSlot struct {
	tb       testing.TB
	from, to *storetest.Server
	slot     string
	moving   bool
	moved    bool // a slot moves once, because nodes that learn of a second move late drop the keys
}

// newMovingSlot returns the slot of a key, in a cluster of two nodes with half of the slots each.
func newMovingSlot(tb testing.TB, all []*storetest.Server, key []byte) *movingSlot {
	tb.Helper()
	slot := redis.SlotOf(key)
	m := &movingSlot{tb: tb, from: all[0], to: all[1], slot: strconv.Itoa(int(slot))}
	if slot >= redis.Slots/2 {
		m.from, m.to = m.to, m.from
	}
	return m
}

func (m *movingSlot) begin() {
	m.to.Must("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.Must("CLUSTER", "MYID"))
	m.from.Must("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.Must("CLUSTER", "MYID"))
	m.moving = true
}

// migrate moves one key, or returns false if no key is left.
func (m *movingSlot) migrate() bool {
	key, _, _ := strings.Cut(m.from.Must("CLUSTER", "GETKEYSINSLOT", m.slot, "1"), "\n")
	if key != "" {
		storetest.MigrateKey(m.from, m.to, key)
	}
	return key != ""
}

// finish moves all remaining keys, and then the slot.
func (m *movingSlot) finish() {
	for m.migrate() {
	}
	there := m.to.Must("CLUSTER", "MYID")
	m.to.Must("CLUSTER", "SETSLOT", m.slot, "NODE", there)
	m.from.Must("CLUSTER", "SETSLOT", m.slot, "NODE", there)
	m.moving, m.moved = false, true
}

// abort aborts the move, or returns false if a key has already been moved or created at the other
// node.
func (m *movingSlot) abort() bool {
	if m.to.Must("CLUSTER", "COUNTKEYSINSLOT", m.slot) != "0" {
		return false
	}
	m.from.Must("CLUSTER", "SETSLOT", m.slot, "STABLE")
	m.to.Must("CLUSTER", "SETSLOT", m.slot, "STABLE")
	m.moving = false
	return true
}

// step does one random step.
func (m *movingSlot) step(random *rand.Rand) {
	switch n := random.IntN(8); {
	case n == 0:
		m.from.Must("SCRIPT", "FLUSH")
		m.to.Must("SCRIPT", "FLUSH")
	case m.moved:
	case !m.moving && n < 4:
		m.begin()
	case m.moving && n == 1 && m.abort():
	case m.moving && n < 4 && !m.migrate():
		m.finish()
	}
}

// tryAgain returns the number of TRYAGAIN replies of both nodes.
func (m *movingSlot) tryAgain() int {
	return errorCount(m.tb, m.from, "TRYAGAIN") + errorCount(m.tb, m.to, "TRYAGAIN")
}

// Before, during and after the move of a slot, and if the move is aborted, every request on it is
// decided as in memory, with native commands and with the script, although nodes reply MOVED, ASK,
// TRYAGAIN and NOSCRIPT.
func TestMovingSlotsDecideAsMemory(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 1, Window: limiter.MaxWindow, CountRefused: true}, // native
		{Algorithm: limiter.FixedWindow, Limit: 5, Window: limiter.MaxWindow, CountRefused: true},
		{Algorithm: limiter.FixedWindow, Limit: 3, Window: limiter.MaxWindow},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 4},
		{Algorithm: limiter.SlidingWindow, Limit: 4, Window: day, SubWindows: 1},
		{Algorithm: limiter.SlidingLog, Limit: 3, Window: day},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: 2},
		{Algorithm: limiter.Concurrency, Limit: 2, Window: day},
		{Algorithm: limiter.FixedWindow, Limit: 6, Window: limiter.MaxWindow, Reserve: limiter.NewReserve(2, day, true)},
	}
	all := storetest.StartCluster(t, 2, false)
	o := &recorder{}
	s := runStore(t, Options{Server: nodes(all), Observer: o, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	random := rand.New(rand.NewPCG(21, 21))
	table, out := newTable(t), grantedLeases{}
	moved := 0
	var c caller
	for round := range uint64(30) {
		tag := fmt.Appendf(nil, "s1{m%d}", round)
		slot := newMovingSlot(t, all, tag)
		for range 16 {
			slot.step(random)
			var charges []limiter.Charge
			var names [][]byte
			many := 1
			if random.IntN(3) == 0 {
				many = 3
			}
			for group := range many {
				k := random.IntN(len(policies))
				charge := oneHit(round*100+2*uint64(k)+1, policies[k])
				if slices.ContainsFunc(charges, func(o limiter.Charge) bool { return o.ID == charge.ID }) {
					continue
				}
				charge.Hits, charge.Group = []uint64{1, 1, 1, 2, 0, 4}[random.IntN(6)], int32(group)
				if charge.Reserve = charge.Policy.Reserve != nil && random.IntN(2) == 0; charge.Policy.UsesLeases() && random.IntN(3) == 0 {
					charge.Refund, charge.Reserve, charge.Hits = true, false, uint64(random.IntN(1<<16))
				}
				charges, names = append(charges, charge), append(names, fmt.Appendf(nil, "%sp%d_", tag, k))
			}
			leases := slices.ContainsFunc(charges, func(c limiter.Charge) bool { return c.Policy.UsesLeases() })
			if random.IntN(4) == 0 && !leases { // a second slot, which does not move; not with leases, because leases of denied groups are released late
				charge := oneHit(round*100+99, policies[1])
				charge.Group = int32(many)
				charges, names = append(charges, charge), append(names, fmt.Appendf(nil, "s1{stays%d}_", round))
			}
			want := limiter.Batch{Charges: slices.Clone(charges), Budget: longTimeout}
			out.setRefunds(&want, 0)
			out.setRefunds(&limiter.Batch{Charges: charges}, 1)
			table.Decide(limiter.Time(time.Now().UnixNano()), &want)
			c.decideMoving(s, slot, charges, names)
			for i := range charges {
				got, want := &c.b.Decisions[i], &want.Decisions[i]
				// The store and the table decide at different times.
				got.Reset, got.RetryAfter, want.Reset, want.RetryAfter = 0, 0, 0, 0
			}
			if diff := cmp.Diff(want.Decisions, c.b.Decisions); diff != "" || want.Denied != c.b.Denied {
				t.Fatalf("round %d, store +, table -:\n%s\n%s", round, diff, describe(charges))
			}
			out.add(t, &want, &c.b)
		}
		if slot.moving {
			slot.finish()
		}
		if slot.moved {
			moved++
		}
	}
	askReplies := errorCount(t, all[0], "ASK") + errorCount(t, all[1], "ASK")
	tryAgains := errorCount(t, all[0], "TRYAGAIN") + errorCount(t, all[1], "TRYAGAIN")
	changed := errorCount(t, all[0], "MOVED") + errorCount(t, all[1], "MOVED")
	t.Logf("%d moves; replies: %d ASK, %d TRYAGAIN, %d MOVED", moved, askReplies, tryAgains, changed)
	if askReplies < 20 || tryAgains < 5 {
		t.Errorf("%d ASK replies and %d TRYAGAIN replies, want many of each", askReplies, tryAgains)
	}
	if o.diverged > 0 || o.decided[byFallback] > 0 {
		t.Errorf("%d replies diverged, decided %v, want none by the fallback", o.diverged, o.decided)
	}
}

// decideMoving sends a request. While the nodes reply TRYAGAIN, it continues to move the slot.
func (c *caller) decideMoving(s *Store, slot *movingSlot, charges []limiter.Charge, names [][]byte) {
	slot.tb.Helper()
	before := slot.tryAgain()
	decided := make(replyChan, 1)
	c.b.Reset()
	c.b.Charges, c.b.Budget = append(c.b.Charges, charges...), longTimeout
	done, err := s.Decide(limiter.Time(time.Now().UnixNano()), &c.b, names, decided)
	storetest.Eventually(slot.tb, "the request is decided", func() bool {
		if done {
			return true
		}
		select {
		case err = <-decided:
			return true
		default:
		}
		if slot.moving && slot.tryAgain() > before {
			slot.finish()
		}
		return false
	})
	must.OK(slot.tb, err)
}

// A redirected hit is decided like any other. A slot may also move between the two commands that
// count a hit and set the expiry of its key: then the hit counts once, and the expiry is set at the
// new node.
func TestExpiryFollowsTheSlot(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"MOVED", "ASK"} {
		var mu sync.Mutex
		sent, hits, expiries := 0, 0, 0
		var h *hostileServer
		h = newHostileServer(t, func(w io.Writer, command []string) bool {
			mu.Lock()
			defer mu.Unlock()
			_, port, _ := net.SplitHostPort(h.addr)
			switch command[0] {
			case "CLUSTER":
				return replyWith(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", port))(w)
			case "ASKING":
				return replyWith("+OK\r\n")(w)
			case "INCRBY":
				if sent++; sent == 1 {
					return replyWith(fmt.Sprintf("-%s 1 127.0.0.1:%s\r\n", code, port))(w)
				}
				hits++
				return replyWith(fmt.Sprintf(":%d\r\n", hits))(w)
			case "EXPIREAT":
				if expiries++; expiries < 4 {
					return replyWith(fmt.Sprintf("-%s 1 127.0.0.1:%s\r\n", code, port))(w)
				}
				return replyWith(":1\r\n")(w)
			}
			return clusterOf(1, 1, nil)(w, command)
		})
		s := runStore(t, Options{Server: redis.Server{Nodes: []string{h.addr}}, Fallback: Deny})
		storetest.Eventually(t, "up", s.Up)
		var c caller
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: limiter.MaxWindow, CountRefused: true}
		if err := c.decideWithin(s, longTimeout, oneHit(1, p)); err != nil || c.b.Decisions[0].Over || c.b.Decisions[0].Before != 0 {
			t.Errorf("%s: decided %+v, %v; want the first hit of a window", code, c.b.Decisions, err)
		}
		storetest.Eventually(t, code+": the key expires", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return expiries == 4
		})
		mu.Lock()
		if hits != 1 {
			t.Errorf("%s: the hit counts %d times", code, hits)
		}
		mu.Unlock()
	}
}
