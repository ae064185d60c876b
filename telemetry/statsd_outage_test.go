package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
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
							got = append(got, arrival{time.Since(began).Truncate(time.Second), line}) // a socket is looked at for a millisecond
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

// TestStatsdAgentThatRestarts has another process listen at the path of a DogStatsD agent between two flushes. Nothing that was
// counted is lost.
func TestStatsdAgentThatRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dsd")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "unixgram", Addr: path, Dog: true})
	for n := 1; n <= 3; n++ {
		_, lines := packets(t, "unixgram", path)
		m.Calls.ShouldRateLimit.Requests.Add(float64(n))
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("ratelimit_server.ShouldRateLimit.total_requests:%d|c", n)
		if got := lines(); !slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("agent %d: %s is missing from:\n%s", n, want, strings.Join(got, "\n"))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := flush(t, s); err == nil {
			t.Errorf("agent %d: flush() = nil after it has gone", n)
		}
	}
}

// TestStatsdNamesAreResolvedAgain holds how often a flush connects: each time over UDP, whose receiver may have moved, and over
// TCP only if the server has hung up, whatever it said before.
func TestStatsdNamesAreResolvedAgain(t *testing.T) {
	udp, _ := packets(t, "udp", "127.0.0.1:0")
	var listen net.ListenConfig
	tcp, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for network, addr := range map[string]string{"udp": udp, "tcp": tcp.Addr().String()} {
		s, _, _ := newTestStatsd(t, StatsdOptions{Network: network, Addr: addr})
		dial, dials := s.outlet.dial, 0
		s.outlet.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return dial(ctx, network, addr)
		}
		for range 3 {
			if err := flush(t, s); err != nil {
				t.Fatal(err)
			}
		}
		if want := map[string]int{"udp": 3, "tcp": 1}[network]; dials != want {
			t.Errorf("%s: 3 flushes connected %d times, want %d", network, dials, want)
		}
		if network == "udp" {
			continue
		}
		server, err := tcp.Accept()
		if err != nil {
			t.Fatal(err)
		}
		hangUp(t, server)
		if err := flush(t, s); err != nil || dials != 2 {
			t.Errorf("after the server hung up, flush() = %v with %d connections, want nil and 2", err, dials)
		}
		again, err := tcp.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		hangUp(t, again)
		if err := flush(t, s); err != nil || dials != 3 {
			t.Errorf("after the server said something and hung up, flush() = %v with %d connections, want nil and 3", err, dials)
		}
		server.Close()
		again.Close()
	}
}

// hangUp ends what a server sends. To close the connection would reset it, since nothing reads what was sent.
func hangUp(t *testing.T, server net.Conn) {
	t.Helper()
	conn, ok := server.(*net.TCPConn)
	if !ok {
		t.Fatalf("the connection is a %T", server)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// TestStatsdEndsWithAServerThatDoesNotRead holds how long Run takes to return, whatever a flush is waiting for.
func TestStatsdEndsWithAServerThatDoesNotRead(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		for _, after := range []time.Duration{0, 10*time.Second + flushTimeout/2, 15 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				s, _, _ := newTestStatsd(t, StatsdOptions{Network: network, Addr: "x", Interval: 10 * time.Second})
				s.outlet.dial = func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					t.Cleanup(func() { theirs.Close() })
					return ours, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.Run(ctx)
				}()
				time.Sleep(after)
				began := time.Now()
				cancel()
				<-done
				if took := time.Since(began); took > 2*flushTimeout {
					t.Errorf("%s: Run() returned %v after its end at %v, want at most %v", network, took, after, 2*flushTimeout)
				}
			})
		}
	}
}
