package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestStatsdOutage checks that counts during an outage are sent afterwards, and that the outage is
// logged once.
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
		// Reads one flush and closes the connection.
		var all bytes.Buffer
		buffer := make([]byte, 1<<16)
		for !strings.Contains(all.String(), "sluice_rule_series_omitted:0|g\n") { // the last line
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
		t.Errorf("the server received:\n%s", got)
	}
	awaitEnd(t, s)
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
	expectCodes(t, m.Conditions, time.Now(), "statsd_unavailable")

	for i := range recoveryFlushes {
		again, err := listen.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		go serve(again)
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		got := <-received
		awaitEnd(t, s)
		if i == 0 && !strings.Contains(got, "ratelimit_server.ShouldRateLimit.total_requests:5|c\n") {
			t.Errorf("the counts of the outage are missing in:\n%s", got)
		}
	}
	if got := logs.FilterMessage("statsd: sending metrics again").Len(); got != 1 {
		t.Errorf("the end of the outage is logged %d times, want once", got)
	}
	expectCodes(t, m.Conditions, time.Now())
}

// TestStatsdServerDoesNotRead has a server that accepts connections but does not read. The duration
// of a flush and the lost lines are bounded.
func TestStatsdServerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, _ := newTestStatsd(t, StatsdOptions{Network: "tcp", Addr: "x", Interval: 10 * time.Second})
		s.conn.dial = func(context.Context, string, string) (net.Conn, error) {
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
			t.Error("flush() = nil although the server does not read")
		}
		if took := time.Since(began); took > flushTimeout {
			t.Errorf("flush() took %v, want at most %v", took, flushTimeout)
		}
		if got := testutil.ToFloat64(s.errors); got < 1 || got > chunkLines+1 {
			t.Errorf("%v errors are counted, want 1 to %d", got, chunkLines+1)
		}
		lost := 0
		for _, series := range s.series {
			lost += int(min(series.total, 1))
		}
		if lost > chunkLines {
			t.Errorf("%d counters count as sent, want at most %d", lost, chunkLines)
		}
	})
}

// TestStatsdInterval checks that Run flushes at each interval and once more at the end.
func TestStatsdInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: "x", Interval: 10 * time.Second})
		type arrival struct {
			at   time.Duration
			line string
		}
		var (
			mu  sync.Mutex // each flush uses its own connection
			got []arrival
		)
		began := time.Now()
		s.conn.dial = func(context.Context, string, string) (net.Conn, error) {
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
							mu.Lock()
							got = append(got, arrival{time.Since(began).Truncate(time.Second), line})
							mu.Unlock()
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
			t.Errorf("the lines and their times differ (-want +got):\n%s", diff)
		}
	})
}

// TestStatsdAgentRestarts restarts a DogStatsD agent at the same path between flushes. No count is
// lost.
func TestStatsdAgentRestarts(t *testing.T) {
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
			t.Errorf("agent %d: flush() = nil after it has stopped", n)
		}
	}
}

// TestStatsdReconnects checks when a flush connects: always over UDP, whose server may have another
// address, and over TCP only if the server has closed the connection, even if it sent data before.
func TestStatsdReconnects(t *testing.T) {
	for network, want := range map[string][]int{"udp": {1, 2, 3, 4, 5}, "tcp": {1, 1, 1, 2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			s, _, _ := newTestStatsd(t, StatsdOptions{Network: network, Addr: "x"})
			var servers []net.Conn
			s.conn.dial = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				servers = append(servers, theirs)
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				t.Cleanup(func() { theirs.Close() })
				return ours, nil
			}
			for i, want := range want {
				switch i {
				case 3:
					servers[len(servers)-1].Close()
				case 4:
					last := servers[len(servers)-1]
					go func() {
						_, _ = last.Write(make([]byte, 1000))
						last.Close()
					}()
				}
				synctest.Wait()
				if err := flush(t, s); err != nil && network == "tcp" || len(servers) != want {
					t.Errorf("%s: flush %d: flush() = %v with %d connections, want %d", network, i, err, len(servers), want)
				}
			}
		})
	}
}

// TestStatsdShutdownIsBounded checks how long Run takes to return if the server does not read.
func TestStatsdShutdownIsBounded(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		for _, after := range []time.Duration{0, 10*time.Second + flushTimeout/2, 15 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				s, _, _ := newTestStatsd(t, StatsdOptions{Network: network, Addr: "x", Interval: 10 * time.Second})
				s.conn.dial = func(context.Context, string, string) (net.Conn, error) {
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
					t.Errorf("%s: Run() returned %v after it was cancelled at %v, want at most %v", network, took, after, 2*flushTimeout)
				}
			})
		}
	}
}

// datagramSocket is a socket whose packets are refused after they were sent, unless listens is
// true.
type datagramSocket struct {
	net.Conn

	listens *bool
	sent    *strings.Builder
	errors  chan error // for Read
}

func (d *datagramSocket) Write(packet []byte) (int, error) {
	if !*d.listens {
		d.fail(syscall.ECONNREFUSED)
		return len(packet), nil
	}
	return d.sent.Write(packet)
}

func (d *datagramSocket) fail(err error) {
	select {
	case d.errors <- err:
	default: // an earlier error waits
	}
}

func (d *datagramSocket) Read([]byte) (int, error) { return 0, <-d.errors }

func (*datagramSocket) SetWriteDeadline(time.Time) error { return nil }

func (d *datagramSocket) Close() error {
	d.fail(net.ErrClosed)
	return nil
}

// TestStatsdRefusedDatagrams checks that the start and the end of an outage are logged, and that
// the first flush after it is sent, although that flush reports the refused packets.
func TestStatsdRefusedDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, logs := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: "x"})
		var sent strings.Builder
		listens := true
		s.conn.dial = func(context.Context, string, string) (net.Conn, error) {
			return &datagramSocket{listens: &listens, sent: &sent, errors: make(chan error, 1)}, nil
		}
		send := func(fails bool) {
			t.Helper()
			synctest.Wait()
			m.Calls.ShouldRateLimit.Requests.Inc()
			if err := flush(t, s); (err != nil) != fails {
				t.Errorf("flush() = %v, want an error: %v", err, fails)
			}
		}
		send(false)
		listens = false
		send(false) // the outage is noticed at the next flush
		send(true)
		send(true)
		expectCodes(t, m.Conditions, time.Now(), "statsd_not_listening")
		listens = true
		send(true)
		for range recoveryFlushes {
			send(false)
		}
		if got := strings.Count(sent.String(), "ratelimit_server.ShouldRateLimit.total_requests:1|c"); got != 2+recoveryFlushes {
			t.Errorf("%d flushes arrived, want %d", got, 2+recoveryFlushes)
		}
		if got := testutil.ToFloat64(s.errors); got != 3 {
			t.Errorf("%v errors are counted, want 3", got)
		}
		must.OK(t, s.conn.Close())
		expectCodes(t, m.Conditions, time.Now())
		begins, ends := logs.FilterMessageSnippet("no server is listening").Len(), logs.FilterMessage("statsd: sending metrics again").Len()
		if begins != 1 || ends != 1 {
			t.Errorf("the log has %d starts and %d ends of the outage, want one of each", begins, ends)
		}
	})
}
