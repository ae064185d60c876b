//go:build more

package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
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

// A foreign key affects only requests on its counter: the fallback decides them, and they charge
// nothing. The store decides all other requests, the log names the key, and the key does not
// change.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	fixed := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: limiter.MaxWindow}
	counts := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: limiter.MaxWindow, CountRefused: true}
	ring := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: day, SubWindows: 10}
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 1000, Window: day}
	bucket := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 1 << 20}
	permits := &limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1000, Window: day}
	start := strconv.FormatInt(int64(fixed.WindowEnd(limiter.Time(time.Now().UnixNano()))-limiter.Time(limiter.MaxWindow))/int64(time.Second), 10)
	sequence := func(number float64) string {
		return string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(number))) + strings.Repeat("\x01", 44)
	}
	srv := storetest.Start(t)
	o := &recorder{}
	logged := make(chan string, 1000)
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Error, Log: Log{
		Unavailable: func(_ string, _ redis.Kind, err error, _ string) { t.Errorf("unavailable: %v", err) },
		Foreign:     func(_, key string, _ error) { logged <- key },
	}})
	storetest.Eventually(t, "up", s.Up)
	begun := time.Now()
	number, want := uint64(0), 0
	for _, tt := range []struct {
		p     *limiter.Policy
		wrote [][]string // commands that write the key, without its name
	}{
		{fixed, [][]string{{"RPUSH", "1"}, {"SET", "letters"}, {"SET", "1.5"}, {"SET", "9223372036854775807"}, {"SET", "-9223372036854775808"}, {"SET", "007"}, {"SET", ""}, {"SET", "1e5"}}},
		{counts, [][]string{{"RPUSH", "1"}, {"SET", "letters"}, {"SET", "1.5"}, {"SET", "9223372036854775807"}, {"SET", "9223372036854775808"}, {"SET", "007"}, {"SET", ""}}},
		{ring, [][]string{{"RPUSH", "1"}, {"SET", "letters"}, {"SET", strings.Repeat("x", 1000)}, {"SET", sequence(math.NaN())}, {"SET", sequence(math.Inf(1))}, {"SET", sequence(1.5)}, {"SET", sequence(-1)}}},
		{log, [][]string{{"SET", "1"}, {"RPUSH", "letters, not a time"}, {"RPUSH", "1"}, {"RPUSH", ""}}},
		{permits, [][]string{{"RPUSH", "1"}, {"SET", "letters"}, {"ZADD", "1", "letters"}, {"ZADD", "99999999999999", "letters"}, {"ZADD", "1", "900000000"}, {"HSET", "a", "b"}}},
		{bucket, [][]string{{"RPUSH", "1"}, {"SET", "letters"}, {"SET", "1"}, {"SET", "-"}, {"SET", ""}}},
	} {
		for _, wrote := range tt.wrote {
			number += 2
			bad, good := oneHit(number, tt.p), oneHit(number+1, tt.p)
			key, partner := string(nameOf("s1", &bad)), string(nameOf("s1", &good))
			if script.IsFixed(tt.p) {
				key, partner = key+start, partner+start
			} else {
				key, partner = key+"x", partner+"x"
			}
			srv.Must(append([]string{wrote[0], key}, wrote[1:]...)...)
			before := srv.Must("DUMP", key)
			good.Group = 1
			var c caller
			for range 3 {
				for _, charges := range [][]limiter.Charge{{bad}, {bad, good}, {good, bad}} {
					if charges[0].Group > charges[len(charges)-1].Group {
						charges[1].Group = 2
					}
					if err := c.decide(s, charges...); !errors.Is(err, ErrUnavailable) {
						t.Errorf("%s %.20q: decide = %v, want the fallback", key, wrote, err)
					}
					want++
				}
			}
			if !script.IsFixed(tt.p) || wrote[1] != "" { // GETRANGE cannot distinguish an empty string from a missing key
				peek := bad
				peek.Hits = 0
				if err := c.decide(s, peek); !errors.Is(err, ErrUnavailable) {
					t.Errorf("%s %.20q: decide of a peek = %v, want the fallback", key, wrote, err)
				}
				want++
			}
			storetest.Eventually(t, "a request without a decision removes no hits from another counter", func() bool {
				n := srv.Must("EXISTS", partner)
				return n == "0" || tt.p == counts // INCRBY has counted the hits
			})
			if err := c.decide(s, good); err != nil {
				t.Errorf("%s %.20q: decide on another counter = %v", key, wrote, err)
			}
			if after := srv.Must("DUMP", key); after != before {
				t.Errorf("%s %.20q: another program's key was changed", key, wrote)
			}
			if _, err := reset(s, tt.p, bytes.TrimSuffix([]byte(key), []byte(start))); err == nil {
				t.Errorf("%s %.20q: the reset deleted another program's key", key, wrote)
			}
			want++
		}
	}
	if got := o.failuresOf(redis.Script); got != want || len(o.failed) != 1 || o.diverged > 0 {
		t.Errorf("failed %v, %d replies diverged, want only %d failures of kind %s", o.failed, o.diverged, want, redis.Script)
	}
	close(logged)
	var keys []string
	for key := range logged {
		keys = append(keys, key)
	}
	most := 1 + int(time.Since(begun)/(10*time.Second))
	if len(keys) < 1 || len(keys) > most || keys[0] != "s1{2}_"+start {
		t.Errorf("the log names %q, want the first key and one key each ten seconds, at most %d", keys, most)
	}
}

// A request on a foreign key does not affect the other requests of its run.
func TestForeignKeyAmongOthers(t *testing.T) {
	srv := storetest.Start(t)
	c := newClient(t, srv)
	ring := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 100, Window: time.Hour, SubWindows: 3}
	srv.Must("SET", "bad", "letters")
	var r script.Run
	names := [][]byte{[]byte("ring"), []byte("bad")}
	for round := range uint64(3) {
		var found [4][]limiter.State
		calls := make([]script.Call, 4)
		r.Clear(0)
		for i := range calls {
			b := &limiter.Batch{Charges: []limiter.Charge{oneHit(1, ring), oneHit(2, hugeBucket)}}
			b.Charges[1].Group = 1
			if i%2 == 1 { // without the foreign key
				b.Charges = b.Charges[:1]
			}
			calls[i].Encode(0, b, names, 0)
			r.Add(&calls[i])
		}
		if script.DecideScript.Run(c, &r); r.Err != nil {
			t.Fatal(r.Err)
		}
		for i := range calls {
			err := r.Reply.Read(&r.Message, &calls[i])
			found[i] = calls[i].Found
			if foreign, ok := errors.AsType[*script.ForeignError](err); ok != (i%2 == 0) || ok && foreign.Key != "bad" || !ok && err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		for i := 1; i < 4; i += 2 {
			used := uint64(0)
			for _, n := range found[i][0].Counts {
				used += uint64(n)
			}
			if want := 2*round + uint64(i)/2; used != want {
				t.Errorf("round %d, call %d found %d used hits, want %d", round, i, used, want)
			}
		}
		if r.Reply.Unread() > 0 || r.Reply.Admitted != 2 {
			t.Errorf("%d unread values, %d charges admitted, want 0 and 2", r.Reply.Unread(), r.Reply.Admitted)
		}
	}
}

// A charge whose command fails is not decided as if its counter were empty, even if the key of
// another charge is foreign.
func TestForeignKeyAmongErrors(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	const limit = 5
	counted := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow, CountRefused: true}
	peek := oneHit(1, counted)
	peek.Hits = 0
	names := [][]byte{[]byte("foreign"), []byte("limited")}
	srv.Must("SET", string(script.AppendName(nil, limiter.Time(time.Now().UnixNano()), counted, names[0])), "letters")
	srv.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	srv.Must("CONFIG", "SET", "maxmemory", "1")
	charges := []limiter.Charge{peek, oneHit(2, counted)}
	charges[1].Group = 1
	var c caller
	passed := 0
	for range 4 * limit {
		must.OK(t, c.decideNamed(s, names, charges...))
		if !c.b.Denied {
			passed++
		}
	}
	if passed != limit {
		t.Errorf("%d requests were admitted under a limit of %d while the store could not count them", passed, limit)
	}
}

// decideNamed is decide for counters with the given names.
func (c *caller) decideNamed(s *Store, names [][]byte, charges ...limiter.Charge) error {
	if c.decided == nil {
		c.decided = make(chan error, 1)
	}
	c.b.Reset()
	c.b.Charges = append(c.b.Charges, charges...)
	done, err := s.Decide(limiter.Time(time.Now().UnixNano()), &c.b, names, c)
	if !done {
		err = <-c.decided
	}
	return err
}
