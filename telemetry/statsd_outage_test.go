package telemetry

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zapcore"
)

// A server that goes away and comes back misses nothing of what counters counted
// meanwhile; the log says so once.
func TestStatsdOutage(t *testing.T) {
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	received := make(chan string, 8)
	serve := func(l net.Listener) {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		l.Close()
		// One flush, then it hangs up.
		var all bytes.Buffer
		buffer := make([]byte, 1<<16)
		for !strings.Contains(all.String(), "sluice_waiting_calls:0|g\n") { // the last line
			n, err := conn.Read(buffer)
			if err != nil {
				break
			}
			all.Write(buffer[:n])
		}
		conn.Close()
		received <- all.String()
	}
	go serve(listener)
	s, m, logs := newTestStatsd(t, StatsdOptions{Network: "tcp", Addr: addr})
	total := func() uint64 { return uint64(testutil.ToFloat64(s.errors)) }

	m.Calls.ShouldRateLimit.Requests.Inc()
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	if got := <-received; !strings.Contains(got, "ratelimit_server.ShouldRateLimit.total_requests:1|c\n") {
		t.Errorf("the server got:\n%s", got)
	}
	for i := range 5 {
		m.Calls.ShouldRateLimit.Requests.Inc()
		if err := flush(t, s); err == nil {
			t.Fatal("flush() = nil without a server")
		}
		if got := total(); got != uint64(i+1) {
			t.Errorf("%d errors are counted, want %d", got, i+1)
		}
	}
	if got := logs.FilterLevelExact(zapcore.WarnLevel).Len(); got != 1 {
		t.Errorf("an outage is logged %d times, want once", got)
	}

	for i := range endsOutage {
		again, err := listen.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		go serve(again)
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		got := <-received
		if i == 0 && !strings.Contains(got, "ratelimit_server.ShouldRateLimit.total_requests:5|c\n") {
			t.Errorf("what was counted during the outage is missing from:\n%s", got)
		}
	}
	if got := logs.FilterMessage("statsd: sending again").Len(); got != 1 {
		t.Errorf("the end of the outage is logged %d times, want once", got)
	}
}

// A server that takes connections and nothing else costs a flush its time, and
// loses a bounded part of it.
func TestStatsdServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, _ := newTestStatsd(t, StatsdOptions{Network: "tcp", Addr: "x", Interval: 10 * time.Second})
		s.outlet.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		}
		keys := make([]RuleKey, 2000)
		for i := range keys {
			keys[i] = RuleKey{Domain: "d", Rule: strings.Repeat("k", i%100) + string(rune('a'+i/100)), Key1: "k"}
		}
		for _, c := range configure(m.Rules, keys...) {
			c.Add(Hits{Total: 1})
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), flushTimeout)
		defer cancel()
		if err := s.flush(ctx); err == nil {
			t.Error("flush() = nil where nobody reads")
		}
		if took := time.Since(began); took > flushTimeout {
			t.Errorf("flush() took %v, want at most %v", took, flushTimeout)
		}
		if got := testutil.ToFloat64(s.errors); got < 1 || got > chunkLines+1 {
			t.Errorf("%v errors are counted, want some, and no more than a chunk has lines", got)
		}
		lost := 0
		for _, series := range s.series {
			lost += int(min(series.total, 1))
		}
		if lost > chunkLines {
			t.Errorf("%d counters count as sent, want a chunk's", lost)
		}
	})
}

// Run sends each interval and once more at the end.
func TestStatsdInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: "x", Interval: 10 * time.Second})
		type arrival struct {
			at   time.Duration
			line string
		}
		var got []arrival
		began := time.Now()
		s.outlet.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				buffer := make([]byte, 1<<16)
				for {
					n, err := theirs.Read(buffer)
					if err != nil {
						return
					}
					for line := range strings.Lines(string(buffer[:n])) {
						if strings.Contains(line, "total_requests") {
							got = append(got, arrival{time.Since(began), line})
						}
					}
				}
			}()
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		m.Calls.ShouldRateLimit.Requests.Add(2)
		time.Sleep(15 * time.Second)
		m.Calls.ShouldRateLimit.Requests.Add(3)
		time.Sleep(8 * time.Second)
		m.Calls.ShouldRateLimit.Requests.Add(4)
		cancel()
		<-done
		synctest.Wait()
		line := func(n string) string { return "ratelimit_server.ShouldRateLimit.total_requests:" + n + "|c\n" }
		want := []arrival{{10 * time.Second, line("2")}, {20 * time.Second, line("3")}, {23 * time.Second, line("4")}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(arrival{})); diff != "" {
			t.Errorf("what was sent when (-want +got):\n%s", diff)
		}
	})
}

// A line longer than a packet is counted, and costs no other.
func TestStatsdLineThatIsTooLong(t *testing.T) {
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr})
	for _, c := range configure(m.Rules, RuleKey{Domain: "d", Rule: strings.Repeat("x", 1500)}, RuleKey{Domain: "d", Rule: "y"}) {
		c.Add(Hits{Total: 1})
	}
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ratelimit.service.rate_limit.d.y.total_hits:1|c"}, only(lines())); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(s.errors); got != 1 {
		t.Errorf("%v errors are counted, want 1", got)
	}
}
