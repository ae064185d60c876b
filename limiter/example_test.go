package limiter_test

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// start is the time of the examples. Programs read the time from a clock.Clock once per request.
const start = limiter.Time(1_700_000_000 * time.Second)

// This example decides two limits for each user together, in one table for all users.
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
	users := identity.NewKey().Hasher()

	var b limiter.Batch // one for each goroutine
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		b.Reset()
		for limit, p := range []*limiter.Policy{&perMinute, &perDay} {
			h := users
			h.AddWord(uint64(limit))
			h.AddBytes([]byte(user))
			b.Charges = append(b.Charges, limiter.Charge{ID: h.Sum(), Policy: p, Hits: 1}) // in one group
		}
		table.Decide(start, &b)
		fmt.Println(user, "denied:", b.Denied, "left today:", b.Decisions[1].Remaining)
	}
	// Output:
	// ann denied: false left today: 99
	// ann denied: false left today: 98
	// ann denied: true left today: 98
	// bob denied: false left today: 99
}
