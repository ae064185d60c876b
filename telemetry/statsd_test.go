package telemetry

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// newTestStatsd returns a sender, which is closed at the end of the test, its metrics and its log.
func newTestStatsd(t *testing.T, o StatsdOptions) (*Statsd, *Metrics, *observer.ObservedLogs) {
	t.Helper()
	return newTestStatsdOf(t, o, Options{Tags: o.Tags})
}

func newTestStatsdOf(t *testing.T, o StatsdOptions, of Options) (*Statsd, *Metrics, *observer.ObservedLogs) {
	t.Helper()
	if o.Interval == 0 {
		o.Interval = time.Hour
	}
	m, err := New(of)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	s, err := NewStatsd(o, m, m.Events.Watch(zap.New(core)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	return s, m, logs
}

func flush(t *testing.T, s *Statsd) error {
	t.Helper()
	err := s.flush(t.Context())
	s.reportResult(err)
	return err
}

// awaitEnd waits until the connection has noticed that the server is gone.
func awaitEnd(t *testing.T, s *Statsd) {
	t.Helper()
	must.Eventually(t, "the end of the connection", func() bool { return len(s.conn.ended) > 0 })
}

// packets listens for datagrams. It returns the address and a function that returns the lines
// received since its last call.
func packets(t *testing.T, network, addr string) (listening string, lines func() []string) {
	t.Helper()
	conn, err := net.ListenPacket(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	listening = conn.LocalAddr().String()
	return listening, func() []string {
		var all []string
		buffer := make([]byte, 1<<16)
		// Datagrams to an address of this machine arrive when they are sent, so this one is the last.
		const last = "last"
		own, err := net.Dial(network, listening)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		go func() { _, _ = own.Write([]byte(last)) }() // waits while a Unix socket is full
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				t.Fatal(err)
			}
			if string(buffer[:n]) == last {
				return all
			}
			if network == "udp" && n > 1432 {
				t.Errorf("a packet has %d bytes, too many for an Ethernet frame", n)
			}
			all = append(all, slices.Collect(strings.SplitSeq(strings.TrimSuffix(string(buffer[:n]), "\n"), "\n"))...)
		}
	}
}

// rateLimitLines returns the lines of rate limit metrics, whose values tests can predict, sorted.
func rateLimitLines(lines []string) []string {
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "ratelimit.go.") || strings.HasPrefix(l, "sluice_")
	})
	slices.Sort(lines)
	return lines
}

func TestStatsdUsesReferenceNames(t *testing.T) {
	t.Setenv("DD_ENV", "prod") // must not show up in plain StatsD
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr, Tags: []Tag{{"zone", "a.b:c"}, {"env", "p"}}})

	rules := configure(m.Rules,
		RuleKey{Domain: "mongo.10.0.0.1", Rule: "db_users.op", Key1: "db_users", Key2: "op"},
		RuleKey{Domain: "d", Rule: "k", Key1: "k", Limit: "60/minute"},
	)
	rules[0].Add(Hits{Total: 7, Over: 2, Near: 1, Within: 5, Shadow: 2})
	rules[1].Add(Hits{Total: 1})
	m.ConfigLoaded("hash", 1)
	m.ConfigRejected()
	m.GlobalShadow.Inc()
	m.ServiceErrors.Inc()
	m.UnknownDomains.Add([]byte("my.domain:80"), 3)
	m.Calls.ShouldRateLimit.Requests.Inc()
	m.Calls.ShouldRateLimit.Done(0, 3*time.Microsecond)
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	all := lines()
	tagged := func(name string) string { return name + ".__env=p.__zone=a_b_c" }
	want := []string{
		tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.total_hits") + ":7|c",
		tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.over_limit") + ":2|c",
		tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.near_limit") + ":1|c",
		tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.within_limit") + ":5|c",
		tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.shadow_mode") + ":2|c",
		"ratelimit.service.rate_limit.d.k.total_hits.__env=p.__limit=60/minute.__zone=a_b_c:1|c",
		tagged("ratelimit.service.config_load_success") + ":1|c",
		tagged("ratelimit.service.config_load_error") + ":1|c",
		tagged("ratelimit.service.global_shadow_mode") + ":1|c",
		tagged("ratelimit.service.call.should_rate_limit.service_error") + ":1|c",
		tagged("ratelimit.service.rate_limit.my.domain_80.domain_not_found") + ":3|c",
		tagged("ratelimit_server.ShouldRateLimit.total_requests") + ":1|c",
		tagged("ratelimit_server.ShouldRateLimit.response_time") + ":0.005000|ms",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, rateLimitLines(slices.Clone(all))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for _, gauge := range []string{"ratelimit.go.numGoroutine", "ratelimit.go.heapInuse", "sluice_delayed_responses_pending"} {
		if !slices.ContainsFunc(all, func(l string) bool {
			return strings.HasPrefix(l, tagged(gauge)+":") && strings.HasSuffix(l, "|g")
		}) {
			t.Errorf("no gauge %s in:\n%s", gauge, strings.Join(all, "\n"))
		}
	}

	// Only increases of counters are sent.
	rules[0].Add(Hits{Total: 2})
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	want = []string{tagged("ratelimit.service.rate_limit.mongo.10_0_0_1.db_users.op.total_hits") + ":2|c"}
	if diff := cmp.Diff(want, rateLimitLines(lines())); diff != "" {
		t.Errorf("lines of the second flush (-want +got):\n%s", diff)
	}

	// The series of a removed rule are dropped.
	configure(m.Rules)
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	for key := range s.series {
		if strings.Contains(key, "mongo") {
			t.Errorf("series %q is kept for a removed rule", key)
		}
	}
}

func TestDogStatsdHasTagsAndMogrifiers(t *testing.T) {
	t.Setenv("DD_ENV", "prod")
	t.Setenv("DD_ORIGIN_DETECTION_ENABLED", "false")
	addr, lines := packets(t, "unixgram", filepath.Join(t.TempDir(), "dsd"))
	mogrifiers := []Mogrifier{
		mogrify(t, `^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.over_limit$;refused.$2;domain:$1,what:$0,no:$9`),
		mogrify(t, `^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$;ratelimit.service.rate_limit.$3;domain:$1,descriptor:$2`),
	}
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "unixgram", Addr: addr, Dog: true, Tags: []Tag{{"zone", "a.b:c,|"}}, Mogrifiers: mogrifiers})
	rules := configure(m.Rules, RuleKey{Domain: "d", Rule: "k_a.l", Key1: "k_a", Key2: "l", Limit: "9/day"})
	rules[0].Add(Hits{Total: 7, Over: 2})
	m.loads.Inc()
	// A value of a request must not become further lines or tags.
	runtime, _ := m.Rules.Runtime(nil, "d", "", []byte("k_x\nevil:1|c|#a,b"), 3, 0)
	runtime.Add(Hits{Total: 1})
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ratelimit.service.config_load_success:1|c|#zone:a.b:c__,env:prod",
		"ratelimit.service.rate_limit.total_hits:7|c|#zone:a.b:c__,limit:9/day,domain:d,descriptor:k_a.l,env:prod",
		"ratelimit.service.rate_limit.total_hits:1|c|#zone:a.b:c__,domain:d,descriptor:k_x_evil_1_c_#a_b,env:prod",
		"refused.l:2|c|#zone:a.b:c__,limit:9/day,domain:d.k_a,what:ratelimit.service.rate_limit.d.k_a.l.over_limit,no:$9,env:prod",
	}
	// Datadog's library appends the tags of its variables before those of a call.
	for i, w := range want {
		want[i] = strings.Replace(strings.TrimSuffix(w, ",env:prod"), "|#", "|#env:prod,", 1)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, rateLimitLines(lines())); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func mogrify(t *testing.T, text string) Mogrifier {
	t.Helper()
	var m Mogrifier
	if err := m.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPlainLines(t *testing.T) {
	in := "a:1|c\nb:2|g|#k:v\nc:3.5|ms|#k:v|c:id|e:x|card:low\n"
	if got, want := string(plainLines([]byte(in))), "a:1|c\nb:2|g\nc:3.5|ms\n"; got != want {
		t.Errorf("plainLines(%q) = %q, want %q", in, got, want)
	}
	if _, err := (&statsdConn{}).Write([]byte("x")); err == nil {
		t.Error("Write() = nil without a connection")
	}
}
