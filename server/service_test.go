package server

import (
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// compile compiles one file of rules.
func compile(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

func newMetrics(tb testing.TB) *telemetry.Metrics {
	tb.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// newTable returns memory for counters.
func newTable(tb testing.TB) *limiter.Table {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// service returns a service of its own with these rules, or without any.
func service(tb testing.TB, settings answer.Settings, rules string) *answer.Service {
	tb.Helper()
	return serviceOn(tb, newTable(tb), settings, rules)
}

func serviceOn(tb testing.TB, table *limiter.Table, settings answer.Settings, rules string) *answer.Service {
	tb.Helper()
	settings.Bounds = fillBounds(settings.Bounds)
	s := answer.NewService(settings, table, newMetrics(tb))
	if rules != "" {
		if err := s.Serve(0, compile(tb, rules)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func entry(key, value string) *rlcommon.RateLimitDescriptor_Entry {
	return &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// gathered returns the values of a metric by its only label, those that are 0 left out.
func gathered(t *testing.T, s *answer.Service, name string) map[string]float64 {
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

// endedBy returns how many connections were ended, by reason.
func endedBy(t *testing.T, s *answer.Service) map[string]float64 {
	t.Helper()
	return gathered(t, s, "sluice_ended_connections_total")
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-t.Context().Done():
			t.Fatal("it never was so that", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// tcp connects to the gRPC listener until the test ends.
func (r *running) tcp(t *testing.T) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.addr["grpc"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func allowList(t *testing.T, texts ...string) *access.AllowList {
	t.Helper()
	a, err := access.ParseAllowList(texts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// certificate returns one with these names, URIs or DNS names.
func certificate(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := new(x509.Certificate)
	for _, name := range names {
		if !strings.Contains(name, ":") {
			c.DNSNames = append(c.DNSNames, name)
			continue
		}
		u, err := url.Parse(name) // as crypto/x509 does
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

// noon is the time of the tests.
const noon = limiter.Time(1_800_014_400 * time.Second)

const shaping = "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 0, max_wait: 1s, max_waiting: 49}}]}"
