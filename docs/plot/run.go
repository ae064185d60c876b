package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// row is the result of one algorithm for the offered requests.
type row struct {
	name, settings string
	released       []int // times of admitted requests, including their delay
	denied         []int // times of denied requests
	// most is the number released in the fullest second, which starts at from.
	most, from int
}

// decideAll offers the same requests to every algorithm.
func decideAll() ([]row, error) {
	rows := []struct {
		name, settings string
		policy         limiter.Policy
	}{
		{"fixed_window", "", limiter.Policy{Algorithm: limiter.FixedWindow}},
		{"sliding_window", "sub_windows: 10", limiter.Policy{Algorithm: limiter.SlidingWindow, SubWindows: 10}},
		{"sliding_log", "", limiter.Policy{Algorithm: limiter.SlidingLog}},
		{"token_bucket", "burst: 5", limiter.Policy{Algorithm: limiter.TokenBucket, Burst: 5}},
		{"leaky_bucket", "slack: 0, max_wait: 500ms", limiter.Policy{
			Algorithm: limiter.LeakyBucket, MaxWait: 500 * time.Millisecond, MaxWaiting: 100,
		}},
		{"concurrency", fmt.Sprintf("%d at once, %d ms each", concurrent, duration), limiter.Policy{Algorithm: limiter.Concurrency, Limit: concurrent}},
	}
	table, err := limiter.New(limiter.Options{Bytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	var decided []row
	for i, r := range rows {
		if r.policy.Window = time.Second; r.policy.Limit == 0 {
			r.policy.Limit = limit
		}
		if err := r.policy.Validate(); err != nil {
			return nil, err
		}
		p := row{name: r.name, settings: r.settings}
		p.offer(table, limiter.Charge{ID: identity.ID{Hi: uint64(i) << 32}, Policy: &r.policy, Hits: 1})
		decided = append(decided, p)
	}
	return decided, nil
}

// lease is a lease of a running request.
type lease struct {
	number uint64
	ends   int
}

// offer decides each offered request.
func (r *row) offer(table *limiter.Table, c limiter.Charge) {
	b := limiter.Batch{Budget: time.Minute, Charges: []limiter.Charge{c}}
	var running []lease // ordered by end
	for _, at := range offered() {
		for ; len(running) > 0 && running[0].ends <= at; running = running[1:] {
			back := c
			back.Hits = running[0].number
			back.Refund = true
			table.Decide(start+limiter.Time(running[0].ends)*limiter.Time(time.Millisecond), &limiter.Batch{Charges: []limiter.Charge{back}})
		}
		table.Decide(start+limiter.Time(at)*limiter.Time(time.Millisecond), &b)
		if b.Denied {
			r.denied = append(r.denied, at)
			continue
		}
		r.released = append(r.released, at+int(b.Wait.Milliseconds()))
		if number := b.Lease(0); number > 0 {
			running = append(running, lease{number, at + duration})
		}
	}
	slices.Sort(r.released)
	for i, from := range r.released {
		n, _ := slices.BinarySearch(r.released[i:], from+second)
		if n > r.most {
			r.most = n
			r.from = from
		}
	}
}
