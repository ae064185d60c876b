package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, "../..", func(path, _ string) { binary = path }))
}

// TestReference runs the cases of envoyproxy/ratelimit. A case with an exception must pass with the
// exception and fail without it, otherwise the exception is unnecessary.
func TestReference(t *testing.T) {
	t.Parallel()
	cases := readCases(t, "../testdata/conformance/cases.yaml")
	exceptions := map[string]Case{}
	for _, e := range readCases(t, "../testdata/conformance/exceptions.yaml") {
		if e.Reason == "" {
			t.Errorf("exception %s has no reason", e.Name)
		}
		exceptions[e.Name] = e
	}
	for _, c := range cases {
		exception, excepted := exceptions[c.Name]
		delete(exceptions, c.Name)
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			found := c.run(t)
			if !excepted {
				report(t, found)
				return
			}
			if len(found) == 0 {
				t.Error("answers as recorded, so the exception is unnecessary")
			}
			exception.Env, exception.Config = c.Env, c.Config
			report(t, exception.run(t))
		})
	}
	for name := range exceptions {
		t.Errorf("exception %s has no recorded case", name)
	}
}

// TestOwnCases runs the cases for features that only sluice has.
func TestOwnCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		for _, c := range readCases(t, file) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				report(t, c.run(t))
			})
		}
	}
}

func readCases(t *testing.T, path string) []Case {
	t.Helper()
	cases, err := Read(path)
	must.OK(t, err)
	return cases
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// run runs a case against a new service with rules in files. It returns the differences.
func (c *Case) run(t *testing.T) []string {
	t.Helper()
	config := t.TempDir()
	for i, text := range c.Config {
		must.OK(t, os.WriteFile(filepath.Join(config, fmt.Sprintf("%02d.yaml", i)), []byte(text), 0o600))
	}
	return c.runWith(t, config)
}

// runWith runs a case against a new service with the given rules. It returns the differences.
func (c *Case) runWith(t *testing.T, config string) (found []string) {
	t.Helper()
	window.AwaitHour(t)
	env := make([]string, 0, len(c.Env))
	for name, value := range c.Env {
		env = append(env, name+"="+value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	s := suite.StartSluice(t, sluice.Options{Binary: binary, Args: append([]string{"--config", config}, c.Args...), Env: env})
	conn, err := grpc.NewClient("passthrough:///"+s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	for i := range c.Steps {
		step := &c.Steps[i]
		for n := range max(1, step.Repeat) {
			reply, err := client.ShouldRateLimit(ctx, step.request())
			for _, f := range step.Expect.compare(reply, err) {
				found = append(found, fmt.Sprintf("step %d, request %d: %s", i+1, n+1, f))
			}
		}
		for _, f := range step.Expect.compareMetrics(t, step.Domain, "http://"+s.Addr("metrics")+"/metrics") {
			found = append(found, fmt.Sprintf("step %d: %s", i+1, f))
		}
	}
	return found
}

func (s *Step) request() *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: s.Domain, HitsAddend: s.HitsAddend}
	for _, d := range s.Descriptors {
		m := &rlcommon.RateLimitDescriptor{IsNegativeHits: d.Refund}
		for _, e := range d.Entries {
			m.Entries = append(m.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
		}
		if d.HitsAddend != nil {
			m.HitsAddend = wrapperspb.UInt64(*d.HitsAddend)
		}
		if d.Limit != nil {
			m.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: d.Limit.RequestsPerUnit,
				Unit:            typev3.RateLimitUnit(typev3.RateLimitUnit_value[d.Limit.Unit]),
			}
			if d.Limit.UnitMultiplier > 0 {
				m.Limit.UnitMultiplier = wrapperspb.UInt32(d.Limit.UnitMultiplier)
			}
		}
		r.Descriptors = append(r.Descriptors, m)
	}
	return r
}

// compare returns the differences between the answer and the expected one.
func (e *Expect) compare(reply *rls.RateLimitResponse, err error) []string {
	if name, isError := strings.CutPrefix(e.Overall, "error:"); isError {
		var want codes.Code
		if jsonErr := want.UnmarshalJSON([]byte(`"` + name + `"`)); jsonErr != nil {
			return []string{jsonErr.Error()}
		}
		if got := status.Code(err); got != want {
			return []string{fmt.Sprintf("error is %v (%v), want %v", got, err, want)}
		}
		return nil
	}
	if err != nil {
		return []string{fmt.Sprintf("error is %v, want none", err)}
	}
	var found []string
	differ := func(what string, got, want any) {
		if diff := cmp.Diff(want, got); diff != "" {
			found = append(found, fmt.Sprintf("%s differs (-want +got):\n%s", what, diff))
		}
	}
	differ("overall code", reply.GetOverallCode().String(), e.Overall)
	var got, want []Status
	for i, s := range reply.GetStatuses() {
		g := Status{Code: s.GetCode().String(), LimitRemaining: s.GetLimitRemaining()}
		if l := s.GetCurrentLimit(); l != nil {
			g.CurrentLimit = &Limit{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: l.GetUnit().String(), Name: l.GetName(), UnitMultiplier: l.GetUnitMultiplier().GetValue()}
		}
		if i < len(e.Statuses) && e.Statuses[i].HasDuration != nil {
			// Durations are whole seconds, at least one, because Envoy truncates them.
			d := s.GetDurationUntilReset()
			has := d != nil && d.GetSeconds() >= 1 && d.GetNanos() == 0
			g.HasDuration = &has
		}
		got = append(got, g)
	}
	want = append(want, e.Statuses...)
	differ("statuses", got, want)
	if e.Headers != nil {
		differ("headers", headers(reply.GetResponseHeadersToAdd(), e.Headers), e.Headers)
	}
	if e.RequestHeaders != nil {
		differ("request headers", headers(reply.GetRequestHeadersToAdd(), e.RequestHeaders), e.RequestHeaders)
	}
	if e.DynamicMetadata != nil {
		got := reply.GetDynamicMetadata().AsMap()
		if decided, ok := got["sluice"].(map[string]any); ok && decided["config_hash"] != "" {
			decided["config_hash"] = "*"
		}
		differ("dynamic metadata", any(got), normalise(e.DynamicMetadata))
	}
	return found
}

// headers returns the received headers, with "*" where any value is expected.
func headers(got []*corev3.HeaderValue, want []Header) []Header {
	out := []Header{}
	for i, h := range got {
		value := h.GetValue()
		if i < len(want) && want[i].Value == "*" && value != "" {
			value = "*"
		}
		out = append(out, Header{h.GetKey(), value})
	}
	return out
}

// normalise converts YAML values to the types of google.protobuf.Struct.
func normalise(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = normalise(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = normalise(e)
		}
		return out
	case int:
		return float64(v)
	default:
		return v
	}
}

func (e *Expect) compareMetrics(t *testing.T, domain, url string) []string {
	t.Helper()
	if len(e.Metrics) == 0 && len(e.Series) == 0 {
		return nil
	}
	families := scrape(t, url)
	var found []string
	for key, want := range e.Metrics {
		rest, ok := strings.CutPrefix(key, domain+".")
		if rest == "domain_not_found" {
			if got := value(families, "ratelimit_service_rate_limit_"+domain+"_"+rest, nil); got != float64(want) {
				found = append(found, fmt.Sprintf("metric %s is %v, want %d", key, got, want))
			}
			continue
		}
		dot := strings.LastIndexByte(rest, '.')
		if !ok || dot < 0 {
			found = append(found, fmt.Sprintf("metric %s is not domain.rule.name", key))
			continue
		}
		labels := map[string]string{"domain": domain, "rule": rest[:dot]}
		if got := value(families, "ratelimit_service_rate_limit_"+rest[dot+1:], labels); got != float64(want) {
			found = append(found, fmt.Sprintf("metric %s is %v, want %d", key, got, want))
		}
	}
	for key, want := range e.Series {
		name, labels := parseSeries(key)
		if got := value(families, name, labels); got != want {
			found = append(found, fmt.Sprintf("series %s is %v, want %v", key, got, want))
		}
	}
	slices.Sort(found)
	return found
}

func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(suite.Get(t, url)))
	must.OK(t, err)
	return families
}

// value returns the sum of the series with all given labels, 0 if there is none.
func value(families map[string]*dto.MetricFamily, name string, labels map[string]string) float64 {
	sum := 0.0
series:
	for _, m := range families[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		for k, v := range labels {
			if have[k] != v {
				continue series
			}
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// parseSeries parses name{label="value",...}.
func parseSeries(text string) (string, map[string]string) {
	name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
	labels := map[string]string{}
	for pair := range strings.SplitSeq(rest, `",`) {
		if k, v, ok := strings.Cut(pair, `="`); ok {
			labels[k] = strings.TrimSuffix(v, `"`)
		}
	}
	return name, labels
}
