package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// expectSeries checks that the metrics page contains all given lines.
func expectSeries(t *testing.T, page string, want ...string) {
	t.Helper()
	lines := strings.Split(page, "\n")
	for _, w := range want {
		if slices.Contains(lines, w) {
			continue
		}
		name, _, _ := strings.Cut(w, "{")
		found := slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, name) })
		t.Errorf("the page lacks %s; the lines with that name are:\n%s", w, strings.Join(found, "\n"))
	}
}

func (r *running) metricsPage(t *testing.T) string {
	t.Helper()
	code, page := get(t, "http://"+r.addr["metrics"]+r.options.MetricsPath)
	if code != http.StatusOK {
		t.Fatalf("/metrics = %d: %s", code, page)
	}
	return page
}

// TestCallsAreCountedByMethodAndCode calls every service of the server.
func TestCallsAreCountedByMethodAndCode(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{MetricsPath: "/stats/of{it}"})
	conn := r.dial(t)
	checkOK(t, conn)
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); status.Code(err) != codes.Unknown {
		t.Errorf("a request without a domain got %v, want UNKNOWN", err)
	}
	health := grpc_health_v1.NewHealthClient(conn)
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "strange"}); status.Code(err) != codes.NotFound {
		t.Errorf("the health of an unknown service is %v, want NOT_FOUND", err)
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Error(err)
	}
	if err := conn.Invoke(t.Context(), "/strange.Service/Strange", &rls.RateLimitRequest{}, &rls.RateLimitResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call of an unknown method got %v, want UNIMPLEMENTED", err)
	}
	page := r.metricsPage(t)
	expectSeries(t, page,
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 2`,
		`ratelimit_service_total_requests{grpc_method="Check"} 2`,
		`ratelimit_service_total_requests{grpc_method="Watch"} 1`,
		`ratelimit_service_response_time_seconds_count{code="OK",grpc_method="ShouldRateLimit"} 1`,
		`ratelimit_service_response_time_seconds_count{code="UNKNOWN",grpc_method="ShouldRateLimit"} 1`,
		`ratelimit_service_response_time_seconds_count{code="OK",grpc_method="Check"} 1`,
		`ratelimit_service_response_time_seconds_count{code="NOT_FOUND",grpc_method="Check"} 1`,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`,
	)
	if strings.Contains(page, "Strange") {
		t.Error("a client can name a method in the metrics")
	}
	if code, _ := get(t, "http://"+r.addr["metrics"]+"/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics is %d, want 404, because MetricsPath is different", code)
	}
}

// TestLabelsOfRules uses a domain and values that envoyproxy/ratelimit rewrites in metrics.
func TestLabelsOfRules(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, `
domain: "a|b:c.10.0.0.1.d"
descriptors:
  - {key: ip, value: "10.0.0.1:80", rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 7}}
  - {key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
`), Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	request := func(entry *rlcommon.RateLimitDescriptor_Entry, change func(*rlcommon.RateLimitDescriptor)) {
		t.Helper()
		d := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry}}
		change(d)
		if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "a|b:c.10.0.0.1.d", Descriptors: []*rlcommon.RateLimitDescriptor{d}}); err != nil {
			t.Error(err)
		}
	}
	plain := func(*rlcommon.RateLimitDescriptor) {}
	refund := func(d *rlcommon.RateLimitDescriptor) { d.IsNegativeHits = true }
	request(entry("ip", "10.0.0.1:80"), plain)
	request(entry("ip", "10.0.0.1:80"), refund)
	request(entry("ip", "10.0.0.1:80"), refund) // a refund without hits
	request(entry("user", "\"quoted\"\n\\é"), plain)
	request(entry("user", "x"), func(d *rlcommon.RateLimitDescriptor) {
		d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_DAY}
	})
	request(entry("free", ""), refund)
	series := func(name, key1, rule, value string) string {
		return fmt.Sprintf(`%s{domain="a_b_c.10_0_0_1.d",key1="%s",key2="",limit="",rule="%s"} %s`, name, key1, rule, value)
	}
	page := r.metricsPage(t)
	expectSeries(t, page,
		series("ratelimit_service_rate_limit_total_hits", "ip_10_0_0_1_80", "ip_10_0_0_1_80", "1"),
		series("ratelimit_service_rate_limit_total_negative_hits", "ip_10_0_0_1_80", "ip_10_0_0_1_80", "2"),
		series("ratelimit_service_rate_limit_total_hits", `user_\"quoted\"\n\\é`, `user_\"quoted\"\n\\é`, "1"),
		series("ratelimit_service_rate_limit_total_hits", "user_x", "user_x", "1"),
		series("ratelimit_service_rate_limit_total_negative_hits", "free", "free", "1"),
		series("sluice_rule_limit_requests", "ip_10_0_0_1_80", "ip_10_0_0_1_80", "7"),
		series("sluice_rule_window_seconds", "ip_10_0_0_1_80", "ip_10_0_0_1_80", "300"),
		series("sluice_rule_limit_requests", "user", "user", "3"),
		"sluice_refunded_hits_total 1",
	)
	if strings.Contains(page, series("sluice_rule_window_seconds", "free", "free", "")) {
		t.Error("an unlimited rule has a metric of its window")
	}
}

// TestInvalidUTF8InMetrics sends values that are not valid labels.
func TestInvalidUTF8InMetrics(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}]}"), Options{})
	m := simpleRequest()
	m.Descriptors[0].Entries[0].Value = "!!"
	request := []byte(strings.ReplaceAll(string(marshal(t, m)), "!!", "\xff\xfe"))
	var reply []byte
	err := r.dial(t, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}))).Invoke(t.Context(), "/"+answer.ServiceName+"/ShouldRateLimit", request, &reply)
	if err != nil {
		t.Errorf("a value that is not UTF-8 got %v", err)
	}
	checkOK(t, r.dial(t))
	expectSeries(t, r.metricsPage(t),
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="k_v",key2="",limit="",rule="k_v"} 1`,
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="other",key2="",limit="",rule="other"} 1`)
}
