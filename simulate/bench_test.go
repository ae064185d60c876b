package simulate

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// fourLimits charge each request of the benchmark four times.
const fourLimits = `
domain: simulated
descriptors:
  - key: address
    rate_limits:
      - {unit: second, requests_per_unit: 20}
      - {unit: hour, requests_per_unit: 5000}
  - key: path
    rate_limits:
      - {unit: second, requests_per_unit: 100}
      - {unit: minute, requests_per_unit: 2000}
`

// benchLines is the number of lines of a log.
const benchLines = 1_000_000

// benchLogs are formats of a line with a time, a number and an address: Envoy's default format, and
// Envoy Gateway's JSON.
var benchLogs = map[string]string{
	"text": `[%s] "GET /api/v1/items/%d HTTP/1.1" 200 - 0 1482 37 35 "%s" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0" ` +
		`"00a1b2c3-1c5e-4c8f-9d3b-2f6a7e0b9c41" "shop.example.com" "10.42.3.17:8080"` + "\n",
	"json": `{":authority":"shop.example.com","bytes_received":0,"bytes_sent":1482,"connection_termination_details":null,` +
		`"downstream_local_address":"10.42.3.9:10080","downstream_remote_address":"10.42.0.1:51234","duration":37,"method":"GET","protocol":"HTTP/1.1",` +
		`"requested_server_name":null,"response_code":200,"response_code_details":"via_upstream","response_flags":"-",` +
		`"route_name":"httproute/default/shop/rule/0/match/0/shop_example_com","start_time":"%s","upstream_cluster":"httproute/default/shop/rule/0",` +
		`"upstream_host":"10.42.3.17:8080","upstream_local_address":"10.42.3.9:44712","upstream_transport_failure_reason":null,` +
		`"user-agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0","x-envoy-origin-path":"/api/v1/items/%d",` +
		`"x-envoy-upstream-service-time":"35","x-forwarded-for":"%s","x-request-id":"00a1b2c3-1c5e-4c8f-9d3b-2f6a7e0b9c41"}` + "\n",
}

// BenchmarkRun simulates logs whose requests are charged to four limits each. lines/cpu-s is the
// number of lines per second of CPU time, which does not depend on the number of cores.
//
//	go test ./simulate -run - -bench Run -benchtime 3x
func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"text", "json"} {
		b.Run("log="+name, func(b *testing.B) {
			var log bytes.Buffer
			for i := range benchLines {
				at := noon.Add(time.Duration(i) * 200 * time.Microsecond).Format("2006-01-02T15:04:05.000Z")
				address := i % 10_000
				fmt.Fprintf(&log, benchLogs[name], at, i%500, fmt.Sprintf("10.%d.%d.%d", address>>16, address>>8&255, address&255))
			}
			set := compile(b, fourLimits)
			runtime.GC() // collect the garbage that creating the log left
			b.SetBytes(int64(log.Len()))
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				report, err := Run(b.Context(), Options{
					Logs:  []accesslog.Log{{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(log.Bytes())), nil }}},
					Rules: set, Now: now, Templates: []*Template{newTemplate(b, "address={x-forwarded-for}"), newTemplate(b, "path={:path}")},
				})
				if err != nil {
					b.Fatal(err)
				}
				if report.Requests != benchLines {
					b.Fatalf("%d requests, want %d", report.Requests, benchLines)
				}
			}
			b.ReportMetric(float64(benchLines)*float64(b.N)/(cpuTime(b)-before).Seconds(), "lines/cpu-s")
		})
	}
}

// cpuTime is the CPU time of the process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
