//go:build more

package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// countWithoutExpiry counts the keys without an expiry.
const countWithoutExpiry = `local n = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TTL', key) == -1 then n = n + 1 end
end
return n`

// The key of a fixed window outlives it by a second and the jitter at most, and keys of windows
// that end together expire at different times.
func TestExpiry(t *testing.T) {
	srv := storetest.Start(t)
	c := newClient(t, srv)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour}
	at := frozenTime() // years before its window ends
	end := int(p.WindowEnd(at)) / int(time.Second)
	late := func(key string) int { // how long after its window a key expires, in seconds
		expires, err := strconv.Atoi(srv.Must("EVAL", expiryOfKey, "1", key))
		must.OK(t, err)
		return expires - end
	}
	var r script.Run
	run := func(key string) {
		var one script.Call
		one.Encode(at, &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}, [][]byte{[]byte(key)}, time.Minute)
		r.Clear(at)
		r.Add(&one)
		if script.DecideScript.Run(c, &r); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	start := strconv.FormatInt(int64(p.WindowEnd(at)-limiter.Time(p.Window))/int64(time.Second), 10)
	seen := map[int]bool{}
	for n := range 40 {
		key := "s1{" + strconv.Itoa(n) + "}f3600_"
		run(key)
		after := late(key + start)
		if after < 1 || after > 62 {
			t.Errorf("%s expires %d seconds after its window, want one to 62", key, after)
		}
		seen[after] = true
	}
	if len(seen) < 5 {
		t.Errorf("40 keys expire in only %d different seconds", len(seen))
	}
	// A key that lacks an expiry, because of another program or its crash, gets one when its
	// counter is full.
	srv.Must("SET", "s1{x}f3600_"+start, "7")
	run("s1{x}f3600_")
	if after := late("s1{x}f3600_" + start); after < 1 || after > 62 {
		t.Errorf("the key of a full counter without an expiry now expires %d seconds after its window, want one to 62", after)
	}
	if n := srv.Must("EVAL", countWithoutExpiry, "0"); n != "0" {
		t.Errorf("%s keys have no expiry", n)
	}
}

// A hit that is in flight when its window ends is decided with the count of that window: with any
// jitter the key outlives the window by the maximum delay of a hit.
func TestLateHitsAtAWindowsEnd(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	c := newClient(t, srv)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Second}
	var r script.Run
	run := func(at limiter.Time) (admitted int64) {
		var one script.Call
		one.Encode(at, &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}, [][]byte{[]byte("s1{1}f1_")}, -1)
		r.Clear(0)
		r.Add(&one)
		if script.DecideScript.Run(c, &r); r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Reply.Admitted
	}
	seconds := func() int64 {
		seconds, _, _ := strings.Cut(srv.Must("TIME"), "\n")
		n, err := strconv.ParseInt(seconds, 10, 64)
		must.OK(t, err)
		return n
	}
	for {
		began := seconds()
		first := run(limiter.Time(began * int64(time.Second)))
		storetest.Eventually(t, "the window is over", func() bool { return seconds() > began })
		second := run(limiter.Time(began * int64(time.Second)))
		if seconds() > began+1 {
			continue // the machine paused
		}
		if first != 1 || second != 0 {
			t.Errorf("%d hits were admitted in the window and %d late hits after it, want 1 and 0", first, second)
		}
		return
	}
}

// Two charges of a request on one counter, or the same counter in many requests of a message, cost
// one read and one write.
func TestOneReadAndWrite(t *testing.T) {
	srv := storetest.Start(t)
	c := newClient(t, srv)
	must.OK(t, loadScript(c))
	var r script.Run
	r.Clear(0)
	calls := make([]script.Call, 100)
	for i := range calls {
		calls[i].Encode(0, &limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeBucket), oneHit(1, hugeBucket)}}, [][]byte{[]byte("s1{1}t1"), []byte("s1{1}t1")}, 0)
		r.Add(&calls[i])
	}
	srv.Must("CONFIG", "RESETSTAT")
	if script.DecideScript.Run(c, &r); r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, command := range []string{"get", "set"} {
		info := srv.Must("EVAL", `return string.match(redis.call('INFO', 'commandstats'), 'cmdstat_'..ARGV[1]..':calls=(%d+)') or '0'`, "0", command)
		if info != "1" {
			t.Errorf("%s was called %s times, want once", command, info)
		}
	}
	if r.Reply.Admitted != 200 {
		t.Errorf("%d charges admitted, want 200", r.Reply.Admitted)
	}
}

// The ttl of a rule is lowered while there is a reservation. The reservation is kept until its own
// expiry, even if the replica with the new rule had no store in between.
func TestReservationsOutliveAnEditedTTL(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}})
	storetest.Eventually(t, "up", s.Up)
	of := func(ttl time.Duration) *limiter.Policy {
		return &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 100, Reserve: limiter.NewReserve(10, ttl, false)}
	}
	long, short := of(time.Hour), of(time.Second)
	var c caller
	lives := func(when string) {
		t.Helper()
		left, err := strconv.Atoi(srv.Must("TTL", string(c.names[0])+"h"))
		if err != nil || left < 3000 || left > 3602 {
			t.Errorf("%s the key of reservations expires in %d seconds, %v; want an hour", when, left, err)
		}
	}
	if c.reserveHits(t, s, long, 10) == 0 {
		t.Fatal("the reservation was denied")
	}
	lives("after a reservation of an hour")
	second := c.reserveHits(t, s, short, 10)
	lives("after a reservation of a second")
	c.settleLease(t, s, short, second, 1)
	lives("after the release of that")
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	if c.reserveHits(t, s, short, 10) == 0 {
		t.Error("the reservation was denied without the store")
	}
	r.setBlocked(false)
	storetest.Eventually(t, "recovered", s.Up)
	lives("after an outage")
	if c.reserveHits(t, s, long, 10) == 0 {
		t.Fatal("another reservation was denied")
	}
	srv.Must("PERSIST", string(c.names[0])+"h")
	c.reserveHits(t, s, long, 10)
	lives("after its expiry was removed")
}

// After an outage the store has all hits on a limit of a day, although unsynced hits of many
// windows of a second would fill the ledger.
func TestExpiredWindowsMakeRoom(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o})
	storetest.Eventually(t, "up", s.Up)
	s.main.ledger.maxEntries = 8
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	ahead := time.Duration(0)
	c := caller{clock: func() time.Time { return time.Now().Add(ahead) }}
	second := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: time.Second}
	for ; ahead < 10*time.Second; ahead += 5 * time.Second {
		for n := range uint64(8) {
			must.OK(t, c.decide(s, oneHit(n+1, second)))
		}
	}
	for range 5 {
		must.OK(t, c.decide(s, oneHit(100, hugeFixedWindow)))
	}
	r.setBlocked(false)
	storetest.Eventually(t, "up again", s.Up)
	if got := c.usedHits(t, s, oneHit(100, hugeFixedWindow)); got != 5 || o.dropped != 0 {
		t.Errorf("the store has %d hits, and %d were dropped; want 5 and none", got, o.dropped)
	}
}
