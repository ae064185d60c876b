package rulefile_test

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// This example finds all mistakes of a file, each with its position and the allowed values.
func ExampleParse() {
	_, found := rulefile.Parse("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minuet, requests_per_unit: 60 }
  - key: address
    rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: tokenbucket }
`))
	for _, d := range found {
		fmt.Println(d)
	}
	// Output:
	// rules.yaml:5:25: error: domain "shop" > key "user" > rate_limit: unknown unit "minuet"; did you mean "minute"? (allowed: second, minute, hour, day, week, month, year)
	// rules.yaml:7:67: error: domain "shop" > key "address" > rate_limit: unknown algorithm "tokenbucket"; did you mean "token_bucket"? (allowed: fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket, concurrency)
}
