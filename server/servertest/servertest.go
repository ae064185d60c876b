// Package servertest provides services, requests and assertions for the tests of package server and
// its subpackages.
package servertest

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Compile compiles a rule file.
func Compile(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	return CompileWith(tb, text, descriptors.Options{})
}

// CompileWith is [Compile] with options.
func CompileWith(tb testing.TB, text string, o descriptors.Options) *descriptors.Set {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, o)
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

// Metrics returns new metrics.
func Metrics(tb testing.TB) *telemetry.Metrics {
	tb.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// Conditions returns the codes of the active conditions, the newest condition first.
func Conditions(m *telemetry.Metrics) string {
	var codes []string
	for _, c := range m.Conditions.Active(time.Now()) {
		codes = append(codes, string(c.Code))
	}
	return strings.Join(codes, " ")
}

// ExpectConditions fails the test unless these are the codes of the active conditions.
func ExpectConditions(tb testing.TB, m *telemetry.Metrics, when, want string) {
	tb.Helper()
	if got := Conditions(m); got != want {
		tb.Errorf("%s: the conditions are %q, want %q", when, got, want)
	}
}

// Table returns a new table of counters.
func Table(tb testing.TB) *limiter.Table {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// Service returns a new service with the given rules, or without rules.
func Service(tb testing.TB, settings answer.Settings, rules string) *answer.Service {
	tb.Helper()
	return ServiceOn(tb, Table(tb), settings, rules)
}

// ServiceOn is [Service] with the given table.
func ServiceOn(tb testing.TB, table *limiter.Table, settings answer.Settings, rules string) *answer.Service {
	tb.Helper()
	settings.Bounds = Bounds(settings.Bounds)
	s := answer.NewService(settings, table, Metrics(tb))
	if rules != "" {
		if err := s.SetRules(0, Compile(tb, rules)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// Entry returns a descriptor entry.
func Entry(key, value string) *rlcommon.RateLimitDescriptor_Entry {
	return &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
}

// Marshal encodes a message.
func Marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// MetricByLabel returns the nonzero values of a metric by its only label.
func MetricByLabel(t *testing.T, s *answer.Service, name string) map[string]float64 {
	t.Helper()
	families, err := s.Metrics().Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				if values == nil {
					values = map[string]float64{}
				}
				values[m.GetLabel()[0].GetValue()] = v
			}
		}
	}
	return values
}

// EndedConnections returns the number of closed connections by reason.
func EndedConnections(t *testing.T, s *answer.Service) map[string]float64 {
	t.Helper()
	return MetricByLabel(t, s, "sluice_grpc_connections_closed_total")
}

// WaitFor is [must.Eventually].
func WaitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	must.Eventually(t, what, holds)
}

// Bounds replaces zero fields by defaults for tests.
func Bounds(b answer.Bounds) answer.Bounds {
	return answer.Bounds{
		MessageBytes: cmp.Or(b.MessageBytes, 4<<20),
		Descriptors:  cmp.Or(b.Descriptors, 1000),
		Entries:      cmp.Or(b.Entries, 64),
		KeyBytes:     cmp.Or(b.KeyBytes, 1<<10),
	}
}

// Limits replaces zero fields by defaults for tests.
func Limits(l transport.Limits) transport.Limits {
	return transport.Limits{
		MaxMessageBytes:       cmp.Or(l.MaxMessageBytes, 4<<20),
		MaxConnections:        cmp.Or(l.MaxConnections, 10_000),
		MaxHTTPConnections:    cmp.Or(l.MaxHTTPConnections, 1000),
		MaxStreams:            cmp.Or(l.MaxStreams, 1024),
		MaxHeaderBytes:        cmp.Or(l.MaxHeaderBytes, 128<<10),
		ConnectionTimeout:     cmp.Or(l.ConnectionTimeout, 24*time.Hour),
		MaxConnectionIdle:     cmp.Or(l.MaxConnectionIdle, 24*time.Hour),
		MaxConnectionAge:      l.MaxConnectionAge,
		MaxConnectionAgeGrace: l.MaxConnectionAgeGrace,
		KeepaliveTime:         cmp.Or(l.KeepaliveTime, 24*time.Hour),
		KeepaliveTimeout:      cmp.Or(l.KeepaliveTimeout, 24*time.Hour),
		KeepaliveMinTime:      cmp.Or(l.KeepaliveMinTime, 10*time.Second),
	}
}

// Noon is the time of tests that need a fixed one.
const Noon = limiter.Time(1_800_014_400 * time.Second)

// OneDescriptor returns a request for the domain d with one descriptor of one entry.
func OneDescriptor(key, value string) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{Entry(key, value)}}},
	}
}

// SimpleRequest returns a request for the domain d with the descriptor (k, v).
func SimpleRequest() *rls.RateLimitRequest {
	return OneDescriptor("k", "v")
}

// CheckOK sends a [SimpleRequest], which must be admitted.
func CheckOK(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	reply, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), SimpleRequest())
	if err != nil || reply.GetOverallCode() != rls.RateLimitResponse_OK || len(reply.GetStatuses()) != 1 {
		t.Errorf("ShouldRateLimit() = %v, %v, want OK", reply, err)
	}
}

// Hit makes a request for the domain d with the given hits and, unless it is nil, the given limit.
func Hit(
	t *testing.T, s *answer.Service, key, value string, hits uint64, limit *rlcommon.RateLimitDescriptor_RateLimitOverride,
) {
	t.Helper()
	request := OneDescriptor(key, value)
	request.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
	request.Descriptors[0].Limit = limit
	if _, _, err := s.Answer(limiter.Time(time.Now().UnixNano()), time.Hour, &answer.Exchange{}, Marshal(t, request)); err != nil {
		t.Fatal(err)
	}
}

// Fetch makes an HTTP request and returns the response's status code, header and body. Header has
// names and values alternately.
func Fetch(t *testing.T, method, url, body string, header ...string) (code int, headers http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(b)
}

// Loopback is the address of a listener that can only be reached from this machine.
var Loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6070}

// RequestAt calls a handler with a request over a connection that a listener at the given address
// has accepted.
func RequestAt(own net.Addr, h http.Handler, method, target, host, body string, header ...string) *DeadlineRecorder {
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, own)
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5000"
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := &DeadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, r)
	return w
}

// DeadlineRecorder records the write deadlines of a response.
type DeadlineRecorder struct {
	*httptest.ResponseRecorder

	Set []time.Time
}

// SetWriteDeadline is for [http.ResponseController].
func (d *DeadlineRecorder) SetWriteDeadline(at time.Time) error {
	d.Set = append(d.Set, at)
	return nil
}
