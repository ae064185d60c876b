package descriptors_test

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: path
    value: /search*
    rate_limit: { unit: second, requests_per_unit: 50, algorithm: token_bucket, name: search }
`

func shopRules() *descriptors.Set {
	configs, found := rulefile.Parse("shop.yaml", []byte(shop))
	set, found := descriptors.Build(configs, found, nil, descriptors.Options{HashKey: identity.NewKey()})
	if set == nil {
		fmt.Println(found)
	}
	return set
}

// This example plans each request, which determines the counters to charge, and decides it.
func ExampleSet_Plan() {
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	set, now := shopRules(), limiter.Time(1_700_000_000*time.Second)
	request := descriptors.Request{Domain: []byte("shop"), Descriptors: []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: []byte("user"), Value: []byte("alice")}}},
		{Entries: []descriptors.Entry{{Key: []byte("path"), Value: []byte("/search?q=1")}}},
	}}
	var plan descriptors.Plan // one for each goroutine
	for range 3 {
		set.Plan(&plan, &request, descriptors.Global{})
		table.Decide(now, &plan.Batch)
		for i, match := range plan.Matches {
			d := plan.Batch.Decisions[match.First]
			fmt.Printf("%s: over %t, %d left  ", request.Descriptors[i].Entries[0].Key, d.Over, d.Remaining)
		}
		fmt.Println("denied:", plan.Batch.Denied)
	}
	// Output:
	// user: over false, 1 left  path: over false, 49 left  denied: false
	// user: over false, 0 left  path: over false, 48 left  denied: false
	// user: over true, 0 left  path: over false, 47 left  denied: true
}

// This example explains which limit applies to a request.
func ExampleSet_Explain() {
	entries, err := descriptors.ParseEntries("path=/search?q=1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(shopRules().Explain("shop", entries))
	// Output:
	// domain "shop"
	// entry 1: path=/search?q=1
	//   exact     path=/search?q=1: none
	//   wildcard  path=/search*: hit at shop.yaml:6:5
	// rule: path=/search* at shop.yaml:6:5
	// limit: 50/second, algorithm: token_bucket, burst: 50, name: "search", at shop.yaml:8:17
}
