//go:build more

package store

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// oddTexts are values that sluice never writes, or that no sequence of requests can produce.
var oddTexts = []string{
	"-1", "-3", "-1000000", "-9223372036854775808", "-1234567890123456789", "-0", "0", "nan", "inf", "-inf", "1e5", "0x10", " 1", "1 ", "+1",
	"nan123456789", "-nan123456789", "inf123456789", "1e5123456789", "0x1f00000000123456789", "123456789.", "123456789.5.5", "-1123456789.25",
	"1800000000-12345678", "9223372036854775807", "99999999999999999999999999999999999999", "1800000000123456789nan",
}

// TestOddCounters writes odd values to the keys of counters. No more hits are admitted than without
// these values, the shard stays available, and the script and the decisions agree.
func TestOddCounters(t *testing.T) {
	t.Parallel()
	const day, most = 24 * time.Hour, 5
	longest := limiter.MaxWindow
	fixed := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: most, Window: longest}
	counts := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: most, Window: longest, CountRefused: true}
	bucket := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: most}
	leaky := &limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: most - 1}
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: most, Window: day}
	permits := &limiter.Policy{Algorithm: limiter.Concurrency, Limit: most, Window: day}
	reserve := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: most, Window: longest, Reserve: limiter.NewReserve(10, time.Hour, true)}
	start := strconv.FormatInt(int64(fixed.WindowEnd(limiter.Time(time.Now().UnixNano()))-limiter.Time(longest))/int64(time.Second), 10)
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Deny, Log: Log{
		Unavailable: func(_ string, _ redis.Kind, err error, _ string) { t.Errorf("unavailable: %v", err) },
	}})
	storetest.Eventually(t, "up", s.Up)
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	try := func(p *limiter.Policy, suffix string, command ...string) {
		t.Helper()
		charge := oneHit(1, p)
		charge.Reserve = p.Reserve != nil
		key := string(nameOf("s1", &charge)) + suffix
		srv.Must("FLUSHALL")
		srv.Must(append([]string{command[0], key}, command[1:]...)...)
		s.denied.clear()
		admitted := 0
		var c caller
		for range 3 * most {
			must.OK(t, c.decide(s, charge))
			if !c.b.Denied {
				admitted++
			}
			if lease := c.b.Lease(0); p.Reserve != nil && lease > 0 {
				c.settleLease(t, s, p, lease, 1)
			}
		}
		if admitted > most {
			t.Errorf("algorithm %d, %q: %d hits are admitted, want at most %d", p.Algorithm, command, admitted, most)
		}
	}
	for _, odd := range oddTexts {
		try(fixed, start, "SET", odd)
		if odd[0] != '-' { // INCRBY has more room than the limit below 0
			try(counts, start, "SET", odd)
		}
		for _, p := range []*limiter.Policy{bucket, leaky} {
			try(p, "x", "SET", odd)
		}
		try(log, "x", "RPUSH", odd)
		for n := range 2*most + 1 { // requests with an odd counter among others
			all := slices.Repeat([]string{now}, 2*most)
			try(log, "x", append([]string{"RPUSH"}, slices.Insert(all, n, odd)...)...)
		}
		try(reserve, "h", "HSET", "s", odd)
		for _, pair := range []string{odd + " 1", "1 " + odd, odd + " 99999999999999", "3 " + odd} {
			try(reserve, "h", "HSET", "s", pair)
			try(reserve, "h", "HSET", "s", "3 1", "600000000", pair)
			try(reserve, "h", "HSET", "s", pair, "600000000", pair)
		}
	}
	for _, score := range []string{"-inf", "+inf", "-1", "0", "1e300", "-1e300", "99999999999999"} {
		for _, member := range []string{"600000000", "letters"} {
			try(permits, "x", "ZADD", score, member)
			try(permits, "x", "ZADD", score, member, "99999999999998", "600000001", "-99999999999998", "600000002")
		}
	}
	if o.diverged > 0 || len(o.failed) > 1 || o.failuresOf(redis.Script) == 0 {
		t.Errorf("failed %v, %d replies diverged, want only failures of kind %s", o.failed, o.diverged, redis.Script)
	}
}

// Hits of the fallback are charged to a count below 0.
func TestSyncOfANegativeCount(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}})
	storetest.Eventually(t, "up", s.Up)
	charge := oneHit(1, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: limiter.MaxWindow})
	var c caller
	must.OK(t, c.decide(s, charge))
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	for range 3 {
		if err := c.decide(s, charge); err != nil || c.b.Denied {
			t.Fatal(err, c.b.Denied)
		}
	}
	key := srv.Must("EVAL", "return redis.call('KEYS', 's1{1}_*')[1]", "0")
	srv.Must("SET", key, "-1000000")
	r.setBlocked(false)
	storetest.Eventually(t, "recovered", s.Up)
	if got := srv.Must("GET", key); got != "3" {
		t.Errorf("the count is %s after three hits were charged, want 3", got)
	}
}
