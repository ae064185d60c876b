package simulate_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// This example decides four requests of a log with a limit of two per minute.
func ExampleRun() {
	const log = `{"start_time":"2026-11-21T09:00:01Z","x-user":"alice","response_code":200}
{"start_time":"2026-11-21T09:00:02Z","x-user":"bob","response_code":200}
{"start_time":"2026-11-21T09:00:03Z","x-user":"alice","response_code":200}
{"start_time":"2026-11-21T09:00:04Z","x-user":"alice","response_code":200}
`
	configs, found := rulefile.Parse("rules.yaml", []byte("{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 2}}]}"))
	set, found := descriptors.Build(configs, found, nil, descriptors.Options{HashKey: identity.NewKey()})
	if set == nil {
		fmt.Println(found)
		return
	}
	user, err := simulate.ParseTemplate("user={x-user}")
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := simulate.Run(context.Background(), simulate.Options{
		Logs: []accesslog.Log{{Name: "access.log", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(log)), nil
		}}},
		Rules: set, Templates: []*simulate.Template{user}, Now: time.Now(), ShowValues: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = report.WriteText(os.Stdout) // or use report.Rules.Limits and other fields
	// Output:
	// 4 requests in 3s from 2026-11-21 09:00 UTC, 2 keys; descriptors from --descriptor (100 %)
	// these rules deny 25.0 %; the log records no denials
	//
	// limit          hits  over          keys  over  timeline  worst 1s        used of limit: p50  p99  max
	// user 2/minute  4     1     25.0 %  2     1     ████      09:00:04 100 %  0.5                 1.5  1.5
	//
	// most over user 2/minute:
	//   user=alice  1 of 3 hits  33.3 %
}
