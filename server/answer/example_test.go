package answer_test

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// This example answers the bytes of a request without a socket, which is where to step through a
// decision: RateLimitRequest{domain: "shop", descriptors: [{entries: [{user, alice}]}]}, three times
// for a limit of two a minute. The replies are a RateLimitResponse: overall_code in field 1, where 1
// is OK and 2 OVER_LIMIT, and in field 2 the status with the limit, the hits left and the reset.
func ExampleService_Answer() {
	configs, found := rulefile.Parse("shop.yaml", []byte(
		"{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 2 } }] }"))
	table, errTable := limiter.New(limiter.Options{Bytes: 1 << 20})
	metrics, errMetrics := telemetry.New(telemetry.Options{})
	set, found := descriptors.Build(configs, found, nil, descriptors.Options{HashKey: table.Key()})
	if set == nil || errTable != nil || errMetrics != nil {
		fmt.Println(found, errTable, errMetrics)
		return
	}
	service := answer.NewService(answer.Settings{
		Bounds: answer.Bounds{MessageBytes: 1000, Descriptors: 100, Entries: 10, KeyBytes: 100},
	}, table, metrics)
	now := limiter.Time(1_700_000_010 * time.Second) // 30 s before the end of a minute
	if err := service.SetRules(now, set); err != nil {
		fmt.Println(err)
		return
	}
	request := []byte("\n\x04shop\x12\x0f\n\r\n\x04user\x12\x05alice")
	var exchange answer.Exchange // one for each goroutine
	for range 3 {
		reply, delay, err := service.Answer(now, 0, &exchange, request)
		fmt.Printf("%q %v %v\n", reply, delay, err)
	}
	// Output:
	// "\b\x01\x12\x0e\b\x01\x12\x04\b\x02\x10\x02\x18\x01\"\x02\b\x1e" 0s <nil>
	// "\b\x01\x12\f\b\x01\x12\x04\b\x02\x10\x02\"\x02\b\x1e" 0s <nil>
	// "\b\x02\x12\f\b\x02\x12\x04\b\x02\x10\x02\"\x02\b\x1e" 0s <nil>
}
