package limiter_test

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// start is when the examples begin. Programs ask a limiter.Clock for the time, once
// for each request.
const start = limiter.Time(1_700_000_000 * time.Second)

// One limit for the whole program: ten a second, three at once.
func ExampleSingle() {
	perSecond, err := limiter.NewSingle(limiter.Policy{
		Algorithm: limiter.TokenBucket, Limit: 10, Window: time.Second, Burst: 3,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var d limiter.Decision
	for range 5 {
		if perSecond.Decide(start, 1, &d) {
			fmt.Println("passes,", d.Remaining, "left")
		} else {
			fmt.Println("refused, try again in", d.RetryAfter)
		}
	}
	// Output:
	// passes, 2 left
	// passes, 1 left
	// passes, 0 left
	// refused, try again in 100ms
	// refused, try again in 100ms
}

// Two limits for each user, decided together, in one table for all users.
func ExampleTable() {
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	perMinute := limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 2, Window: time.Minute, SubWindows: 10}
	perDay := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour}
	perMinute.Prepare()
	perDay.Prepare()
	users := limiter.NewHashKey().Hasher()

	var b limiter.Batch // one for each goroutine
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		b.Reset()
		for limit, p := range []*limiter.Policy{&perMinute, &perDay} {
			h := users
			h.Word(uint64(limit))
			h.Bytes([]byte(user))
			b.Charges = append(b.Charges, limiter.Charge{ID: h.Sum(), Policy: p, Hits: 1}) // of one group
		}
		table.Decide(start, &b)
		fmt.Println(user, "refused:", b.Refused, "left today:", b.Decisions[1].Remaining)
	}
	// Output:
	// ann refused: false left today: 99
	// ann refused: false left today: 98
	// ann refused: true left today: 98
	// bob refused: false left today: 99
}
