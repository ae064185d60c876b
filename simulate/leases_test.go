package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

const (
	atOnce = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: minute, unit_multiplier: 10, requests_per_unit: 3, algorithm: concurrency, name: streams } }]"
	timed  = users + " %DURATION%"
)

// TestConcurrencyLeases compares the decisions with a count of the running requests.
func TestConcurrencyLeases(t *testing.T) {
	type request struct{ at, lasts int } // in milliseconds
	random := rand.New(rand.NewPCG(1, 2))
	var all []request
	at := 0
	for range 2000 {
		at += 1 + random.IntN(60)
		all = append(all, request{at, random.IntN(300)})
	}
	want, log := map[int]bool{}, strings.Builder{}
	var ends []int
	most := 0
	for _, q := range all {
		ends = slices.DeleteFunc(ends, func(end int) bool { return end <= q.at })
		if want[q.at] = len(ends) >= 3; !want[q.at] {
			ends = append(ends, q.at+q.lasts)
		}
		most = max(most, len(ends))
		log.WriteString(strings.TrimSuffix(usersLine(noon.Add(time.Duration(q.at)*time.Millisecond), 200, "al"), "\n") + fmt.Sprintf(" %d\n", q.lasts))
	}
	denied, wrong := 0, 0
	report := simulateUsers(t, func(o *Options) {
		o.Rules, o.Format = compile(t, atOnce), timed
		o.OnDecision = func(at limiter.Time, _, over bool) {
			if over {
				denied++
			}
			if over != want[int(time.Unix(0, int64(at)).Sub(noon)/time.Millisecond)] {
				wrong++
			}
		}
	}, logOf("log", log.String()))
	if wrong > 0 || denied == 0 || most != 3 {
		t.Errorf("%d of %d decisions differ, %d denials", wrong, len(all), denied)
	}
	if l := report.Rules.Limits[0]; l.Used.Max != 4.0/3 || int(l.Over) != denied {
		t.Errorf("the limit has %+v, want a peak of one more than the limit, and %d hits over it", l, denied)
	}
}

func TestLogsWithoutDurations(t *testing.T) {
	o := Options{
		Logs:  []accesslog.Log{logOf("log", usersLine(noon, 200, "al"))},
		Rules: compile(t, perUser), Against: []Alternative{{"other", compile(t, atOnce)}}, Format: users, Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now,
	}
	_, err := Run(t.Context(), o)
	const want = `user at rules.yaml:2:40 holds leases until requests end, but the log has no durations; ` +
		`add %DURATION% to its format, or a field "duration" in milliseconds (--format json duration=FIELD); the log has time, status, x-user`
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	line := strings.TrimSuffix(usersLine(noon, 200, "al"), "\n")
	report := simulateUsers(t, func(o *Options) { o.Rules, o.Format = compile(t, atOnce), timed },
		logOf("log", line+" -\n"+line+" 5\n"+line+" 99999999999999999999\n"))
	if report.Bad != 2 || report.Requests != 1 || !strings.Contains(report.FirstBad[0].String(), "duration: want milliseconds") {
		t.Errorf("%d of 3 lines are bad, and there are %d requests: %v", report.Bad, report.Requests, report.FirstBad)
	}
}

// TestReservedRequests has three concurrent requests on a budget for two, which cost less than they
// reserve, and a later fourth request. The logged hits are the costs.
func TestReservedRequests(t *testing.T) {
	const budget = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 1000, name: tokens, reserve: { amount: 400 } } }]"
	var log strings.Builder
	for i, at := range []int{0, 1, 2, 60} {
		fmt.Fprintf(&log, `{"time":%q,"duration":%d,"domain":"shop","descriptors":[{"entries":[["user","al"]],"hits":%d}]}`+"\n",
			noon.Add(time.Duration(at)*time.Second).Format(time.RFC3339), 10_000, 100+i)
	}
	var denied []bool
	report := simulateUsers(t, func(o *Options) {
		o.Rules, o.Format, o.Templates = compile(t, budget), "json", nil
		o.OnDecision = func(_ limiter.Time, _, over bool) { denied = append(denied, over) }
	}, logOf("log", log.String()))
	if !slices.Equal(denied, []bool{false, false, true, false}) {
		t.Errorf("denials %v of %d requests, want the third: %v", denied, report.Requests, report.FirstBad)
	}
}

// TestEnvoyLeaseEnd computes both calls from Envoy's configuration. The second call is sent after
// the logged duration.
func TestEnvoyLeaseEnd(t *testing.T) {
	element := `{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }`
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: []byte(`resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  filter_chains:
  - filters:
    - typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        http_filters:
        - name: limit
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
            domain: shop
            rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }
            rate_limits: [` + element + `, ` + strings.TrimSuffix(element, " }") +
		`, hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%" }, apply_on_stream_done: true }]
        - { name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }
        route_config: { virtual_hosts: [{ name: v, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: backend } }] }] }
`)}})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for i := range 10 {
		log.WriteString(strings.TrimSuffix(usersLine(noon.Add(time.Duration(i)*time.Second), 200, "al"), "\n") + " \"/\" \"a\" 3500\n")
	}
	report := simulateUsers(t, func(o *Options) {
		o.Rules, o.Templates, o.Envoy, o.Format = compile(t, atOnce), nil, config, users+` "%REQ(:PATH)%" "%REQ(:AUTHORITY)%" %DURATION%`
	}, logOf("log", log.String()))
	// Requests 0, 1 and 2 run until 3.5, 4.5 and 5.5 s, and so on.
	if len(report.Unknown) > 0 || report.Rules.Denied != 2 {
		t.Errorf("%d of %d denied, unknown: %v", report.Rules.Denied, report.Requests, report.Unknown)
	}
}

// TestDurationUnits reads durations in the unit of each server.
func TestDurationUnits(t *testing.T) {
	for name, line := range map[string]string{
		"Envoy's":                         `{"start_time":"TIME","duration":1500,"status":200,"user":"al"}`,
		"nginx's":                         `{"time_iso8601":"TIME","request_time":"1.500","status":200,"user":"al"}`,
		"another field named by --format": `{"time":"TIME","elapsed":1500,"request_time":"9","user":"al"}`,
	} {
		for after, denied := range map[time.Duration]uint64{1400 * time.Millisecond: 1, 1600 * time.Millisecond: 0} {
			var log strings.Builder
			for _, at := range []time.Duration{0, 0, 0, after} { // the limit is three concurrent requests
				log.WriteString(strings.Replace(line, "TIME", noon.Add(at).Format(time.RFC3339Nano), 1) + "\n")
			}
			found := simulateUsers(t, func(o *Options) {
				o.Rules, o.Format, o.Templates = compile(t, atOnce), "auto", []*Template{newTemplate(t, "user={user}")}
				if strings.HasPrefix(name, "another") {
					o.Format = "json duration=elapsed"
				}
			}, logOf("log", log.String()))
			if found.Rules.Denied != denied || found.Requests != 4 {
				t.Errorf("%s, %v later: %d of %d requests are denied, want %d", name, after, found.Rules.Denied, found.Requests, denied)
			}
		}
	}
}

// TestMemoryOfLeases checks the memory bound for leases of running requests.
func TestMemoryOfLeases(t *testing.T) {
	var log strings.Builder
	for i := range 40_000 {
		line := usersLine(noon.Add(time.Duration(i)*50*time.Millisecond), 200, fmt.Sprint("u", i%12))
		log.WriteString(strings.TrimSuffix(line, "\n") + " 4000000000\n")
	}
	_, err := Run(t.Context(), Options{
		Logs: []accesslog.Log{logOf("log", log.String())}, Rules: compile(t, strings.Replace(atOnce, ": 3,", ": 4096,", 1)), Format: timed,
		Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now, Memory: 4 << 20, Reorder: time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), "12 keys do not fit into memory (") {
		t.Errorf("Run() with 40,000 running requests = %v", err)
	}
}

// TestReservationsLearn has sequential requests of 1 hit, and then five concurrent requests on a
// budget for two of the first estimate.
func TestReservationsLearn(t *testing.T) {
	const budget = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 1000, name: tokens, reserve: { p90: true, first: 400 } } }]"
	var log strings.Builder
	for n := range 105 {
		at := noon.Add(time.Duration(min(n, 100)) * time.Second)
		log.WriteString(strings.TrimSuffix(usersLine(at, 200, "al"), "\n") + " 500\n")
	}
	report := simulateUsers(t, func(o *Options) { o.Rules, o.Format = compile(t, budget), timed }, logOf("log", log.String()))
	if report.Requests != 105 || report.Rules.Denied != 0 {
		t.Errorf("%d of %d requests denied, want none", report.Rules.Denied, report.Requests)
	}
}
