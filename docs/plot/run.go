package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A row is one algorithm's answers to the offered requests.
type row struct {
	name, words string
	released    []int // when those that were admitted go on; later than they came if held
	denied      []int // when those came that were denied
	// most is how many were released in the fullest second, from the one at from.
	most, from int
}

// play offers the same requests to every algorithm.
func play() ([]row, error) {
	rows := []struct {
		name, words string
		policy      limiter.Policy
	}{
		{"fixed_window", "", limiter.Policy{Algorithm: limiter.FixedWindow}},
		{"sliding_window", "sub_windows: 10", limiter.Policy{Algorithm: limiter.SlidingWindow, SubWindows: 10}},
		{"sliding_log", "", limiter.Policy{Algorithm: limiter.SlidingLog}},
		{"token_bucket", "burst: 5", limiter.Policy{Algorithm: limiter.TokenBucket, Burst: 5}},
		{"leaky_bucket", "slack: 0, max_wait: 500ms", limiter.Policy{
			Algorithm: limiter.LeakyBucket, MaxWait: 500 * time.Millisecond, MaxWaiting: 100,
		}},
		{"concurrency", fmt.Sprintf("%d at once, %d ms each", atOnce, lasts), limiter.Policy{Algorithm: limiter.Concurrency, Limit: atOnce}},
	}
	table, err := limiter.New(limiter.Options{Bytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	var played []row
	for i, r := range rows {
		if r.policy.Window = time.Second; r.policy.Limit == 0 {
			r.policy.Limit = limit
		}
		if err := r.policy.Validate(); err != nil {
			return nil, err
		}
		p := row{name: r.name, words: r.words}
		p.offer(table, limiter.Charge{ID: identity.ID{Hi: uint64(i) << 32}, Policy: &r.policy, Hits: 1})
		played = append(played, p)
	}
	return played, nil
}

// A lease is what a request holds until it ends.
type lease struct {
	number uint64
	ends   int
}

// offer asks the table for each request when it comes.
func (r *row) offer(table *limiter.Table, c limiter.Charge) {
	b := limiter.Batch{Budget: time.Minute, Charges: []limiter.Charge{c}}
	var running []lease // in the order in which they end
	for _, at := range offered() {
		for ; len(running) > 0 && running[0].ends <= at; running = running[1:] {
			back := c
			back.Hits, back.Refund = running[0].number, true
			table.Decide(start+limiter.Time(running[0].ends)*limiter.Time(time.Millisecond), &limiter.Batch{Charges: []limiter.Charge{back}})
		}
		table.Decide(start+limiter.Time(at)*limiter.Time(time.Millisecond), &b)
		if b.Denied {
			r.denied = append(r.denied, at)
			continue
		}
		r.released = append(r.released, at+int(b.Wait.Milliseconds()))
		if number := b.Lease(0); number > 0 {
			running = append(running, lease{number, at + lasts})
		}
	}
	slices.Sort(r.released)
	for i, from := range r.released {
		n, _ := slices.BinarySearch(r.released[i:], from+second)
		if n > r.most {
			r.most, r.from = n, from
		}
	}
}
