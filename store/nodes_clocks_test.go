//go:build more

package store

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A clockNode is a fake node of a cluster with a clock of its own. It has counts, and the expiries
// of keys.
type clockNode struct {
	*hostileServer
	now       time.Time
	mu        sync.Mutex
	counts    map[string]int64
	ends      map[string]int64
	moved     string // address of the node that the slots of synced hits have moved to, empty if they have not
	dropsHits bool   // hits close the connection

	tryAgain bool          // answer hits with TRYAGAIN
	syncs    chan struct{} // receives an element before the first sync, which waits for another one; nil if syncs do not wait
	first    sync.Once
}

// newClockNodes returns nodes with the given clocks and equal shares of the slots.
func newClockNodes(tb testing.TB, clocks ...time.Time) (all []*clockNode) {
	tb.Helper()
	var slots string
	for _, now := range clocks {
		n := &clockNode{now: now, counts: map[string]int64{}, ends: map[string]int64{}}
		n.hostileServer = newHostileServer(tb, func(w io.Writer, command []string) bool {
			if command[0] == "CLUSTER" {
				return replyWith(slots)(w)
			}
			if n.syncs != nil && len(command) == 10 && command[6] == "f" {
				n.first.Do(func() {
					n.syncs <- struct{}{}
					<-n.syncs
				})
			}
			answer := n.answer(command)
			return answer != "" && replyWith(answer)(w)
		})
		all = append(all, n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(all))
	for i, n := range all {
		_, port, _ := net.SplitHostPort(n.addr)
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", i*redis.Slots/len(all), (i+1)*redis.Slots/len(all)-1, port)
	}
	slots = b.String()
	return all
}

func (n *clockNode) answer(command []string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch command[0] {
	case "INCRBY":
		switch {
		case n.dropsHits:
			return ""
		case n.tryAgain:
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		}
		by, _ := strconv.ParseInt(command[2], 10, 64)
		n.counts[command[1]] += by
		return fmt.Sprintf(":%d\r\n", n.counts[command[1]])
	case "EXPIREAT":
		at, _ := strconv.ParseInt(command[2], 10, 64)
		if n.ends[command[1]] = at; at <= n.now.Unix() {
			delete(n.counts, command[1])
		}
		return ":1\r\n"
	case "EVALSHA":
		if len(command) == 10 && command[6] == "f" { // a sync
			return n.addCount(command[3], command[8], command[9])
		}
		fallthrough
	default: // a script run of a probe
		return fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n:0\r\n", n.now.Unix(), n.now.Nanosecond())
	}
}

// If the nodes of a cluster have different clocks, replicas agree on the window of each counter and
// admit exactly the limit: no key expires before its window ends, or long after that. The same is
// true of names whose slot depends on the start of the window.
func TestNodesWithDifferentClocks(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	const hour, limit = time.Hour, 5
	for _, clocks := range [][]time.Time{
		{start, start.Add(48 * hour)}, {start, start.Add(-48 * hour)}, {start.Add(hour / 2), start.Add(-3 * hour), start.Add(24 * hour)},
	} {
		all := newClockNodes(t, clocks...)
		var stores []*Store
		for range 4 {
			s := runStore(t, Options{Server: redis.Server{Nodes: []string{all[0].addr}}, Fallback: Deny, Jitter: -1, Clock: func() time.Time { return start }})
			storetest.Eventually(t, "up", s.Up)
			stores = append(stores, s)
		}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: hour, CountRefused: true}
		for _, form := range []string{"s1{%d}_", "untagged_%d_"} {
			for n := range uint64(30) {
				admitted := 0
				for k := range 3 * limit {
					var c caller
					c.decided = make(chan error, 1)
					c.b.Charges, c.b.Budget = []limiter.Charge{oneHit(n, p)}, longTimeout
					done, err := stores[k%len(stores)].Decide(limiter.Time(start.UnixNano()), &c.b, [][]byte{fmt.Appendf(nil, form, n)}, &c)
					if !done {
						err = <-c.decided
					}
					must.OK(t, err)
					if d := &c.b.Decisions[0]; !d.Denied {
						admitted++
					}
				}
				if admitted != limit {
					t.Errorf("clocks %v, counter "+form+": %d hits are admitted, want %d", clocks, n, admitted, limit)
				}
			}
		}
		for _, node := range all {
			node.mu.Lock()
			for key, end := range node.ends {
				if after := time.Unix(end, 0).Sub(node.now); after < 0 || after > hour+3*time.Second {
					t.Errorf("clocks %v: the key %s expires %v from now", clocks, key, after)
				}
			}
			node.mu.Unlock()
		}
	}
}

// addCount answers a sync of a fixed window.
func (n *clockNode) addCount(key, hits, end string) string {
	if n.moved != "" {
		return fmt.Sprintf("-MOVED %d %s\r\n", redis.SlotOf([]byte(key)), n.moved)
	}
	more, _ := strconv.ParseInt(hits, 10, 64)
	n.counts[key] += more
	n.ends[key], _ = strconv.ParseInt(end, 10, 64)
	return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:0\r\n:1\r\n:%s\r\n", n.now.Unix(), n.now.Nanosecond(), hits)
}

// Unsynced hits whose slot moves to a node with another clock are charged by that clock: the key
// expires when the window ends.
func TestUnsyncedHitsFollowToAnotherClock(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for _, ahead := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		all := newClockNodes(t, start, start.Add(ahead))
		all[0].moved = all[1].addr
		s := runStore(t, Options{Server: redis.Server{Nodes: []string{all[0].addr}}, Jitter: -1, Clock: func() time.Time { return start }})
		storetest.Eventually(t, "up", s.Up)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Hour}
		name := []byte("untagged_0_1800000000")
		for n := 1; redis.SlotOf(name) >= redis.Slots/2; n++ {
			name = fmt.Appendf(nil, "untagged_%d_1800000000", n)
		}
		b := limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}
		b.Stored().ResetDecisions()
		s.main.recordUnsynced(Allow, limiter.Time(start.UnixNano()), &b, 0, name, "", redis.SlotOf(name), &caller{})
		s.main.shardOf(redis.SlotOf(name)).requestSync()
		storetest.Eventually(t, "the hits are synced", func() bool { return s.unsyncedCounters() == 0 && all[1].hasKey(string(name)) })
		if after := time.Unix(all[1].ends[string(name)], 0).Sub(all[1].now); after < 0 || after > time.Hour+3*time.Second {
			t.Errorf("a node that is %v ahead: the key expires %v from now", ahead, after)
		}
	}
}

// A shard that ends while another shard charges its hits does not close the other shard's
// connection.
func TestShardEndsWhileItsHitsFollow(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	all := newClockNodes(t, start, start)
	all[0].moved, all[1].syncs = all[1].addr, make(chan struct{})
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Nodes: []string{all[0].addr}}, Observer: o, Clock: func() time.Time { return start }})
	storetest.Eventually(t, "up", s.Up)
	b := limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeFixedWindow)}}
	b.Stored().ResetDecisions()
	name, sh, other := []byte("s1{a}_0"), s.main.shardOf(0), s.main.shardOf(redis.Slots-1)
	for n := 1; redis.SlotOf(name) >= redis.Slots/2; n++ {
		name = fmt.Appendf(nil, "s1{%d}_0", n)
	}
	c := other.connection()
	s.main.recordUnsynced(Allow, limiter.Time(start.UnixNano()), &b, 0, name, "", redis.SlotOf(name), &caller{})
	sh.requestSync()
	<-all[1].syncs
	s.main.mu.Lock()
	s.main.shards[sh.name].stop()
	s.main.mu.Unlock()
	all[1].syncs <- struct{}{}
	storetest.Eventually(t, "the shard has ended, and the hits are synced", func() bool { return !sh.isUp() && s.unsyncedCounters() == 0 && all[1].hasKey(string(name)) })
	if other.connection() != c || o.failuresOf(redis.Connection)+o.failuresOf(redis.Timeout) != 0 {
		t.Errorf("the other shard has lost its connection: failures %v", o.failed)
	}
}

// hasKey reports whether the node has counted hits on a key.
func (n *clockNode) hasKey(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[key] > 0
}

// If the slot of a counter depends on the start of its window, the fallback and unsynced hits use
// the clock of the counter's name, not the node's clock.
func TestFallbackAndNodeClocks(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Hour, CountRefused: true}
	for _, ahead := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		all := newClockNodes(t, start, start.Add(ahead))
		s := runStore(t, Options{Server: redis.Server{Nodes: []string{all[0].addr}}, Jitter: -1, Clock: func() time.Time { return start }})
		storetest.Eventually(t, "up", s.Up)
		var c caller
		c.decided = make(chan error, 1)
		n, key := 0, ""
		for ; key == "" || redis.SlotOf([]byte(key)) < redis.Slots/2; n++ {
			key = fmt.Sprintf("untagged_%d_%d", n, start.Unix())
		}
		name := []byte(strings.TrimSuffix(key, strconv.FormatInt(start.Unix(), 10)))
		decide := func() *limiter.Decision {
			t.Helper()
			c.b.Reset()
			c.b.Charges, c.b.Budget = []limiter.Charge{oneHit(1, p)}, longTimeout
			done, err := s.Decide(limiter.Time(start.UnixNano()), &c.b, [][]byte{name}, &c)
			if !done {
				err = <-c.decided
			}
			must.OK(t, err)
			return &c.b.Decisions[0]
		}
		if d := decide(); d.Before != 0 || d.Reset.Round(time.Second) != time.Hour {
			t.Errorf("a node that is %v ahead decided %+v, want a reset after an hour", ahead, d)
		}
		all[1].setDropsHits(true)
		if d := decide(); d.Before != 1 || d.Reset.Round(time.Second) != time.Hour {
			t.Errorf("a node that is %v ahead: the fallback decided %+v, want one hit before and a reset after an hour", ahead, d)
		}
		all[1].setDropsHits(false)
		storetest.Eventually(t, "the hits are synced", func() bool { return s.Up() && s.unsyncedCounters() == 0 })
		if d := decide(); d.Before != 2 {
			t.Errorf("a node that is %v ahead: %d hits are charged, want 2", ahead, d.Before)
		}
		all[1].mu.Lock()
		if after := time.Unix(all[1].ends[key], 0).Sub(all[1].now); after < 0 || after > time.Hour+3*time.Second {
			t.Errorf("a node that is %v ahead: the key expires %v from now", ahead, after)
		}
		all[1].mu.Unlock()
	}
}

// setDropsHits sets whether hits close the connection.
func (n *clockNode) setDropsHits(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropsHits = drop
}
