package builtin

import (
	"strings"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// advanceClock advances the clock of the quota service, and makes it read the clock by opening and
// closing a stream.
func (r *running) advanceClock(t *testing.T, conn grpc.ClientConnInterface, d time.Duration) {
	t.Helper()
	r.passed.Add(int64(d))
	c, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err == nil {
		err = c.CloseSend()
	}
	must.OK(t, err)
	if m, err := c.Recv(); err == nil {
		t.Errorf("a stream without a report received %v", m)
	}
}

// TestQuotaStreamNeedsAReport opens a stream without a report.
func TestQuotaStreamNeedsAReport(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := openQuotas(t, r)
	await(t, "a stream", func() bool { return metricValue(t, s, "sluice_quota_streams") == 1 })
	r.advanceClock(t, r.dial(t), 10*time.Second)
	if m, err := c.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a stream without a report received %v, %v", m, err)
	}
	await(t, "no stream", func() bool { return metricValue(t, s, "sluice_quota_streams") == 0 })
}

// TestUnreadQuotaStreamEnds reports more buckets than answers fit into the window, and reads none.
func TestUnreadQuotaStreamEnds(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	must.OK(t, err)
	defer conn.Close()
	c, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	must.OK(t, err)
	long := manyBuckets(600)
	for i := range long {
		long[i] += strings.Repeat("x", 900)
	}
	send(t, c, newReports(1, long...))
	await(t, "an answer waits", func() bool { return testutil.ToFloat64(s.Metrics().Quota.Assigned) >= 1 })
	other := r.dial(t)
	await(t, "the stream has ended", func() bool {
		// In steps: after a jump of the clock the process assumes that it was suspended, and sends
		// nothing for a while.
		r.advanceClock(t, other, 200*time.Millisecond)
		return metricValue(t, s, "sluice_quota_streams") == 0
	})
}

// TestDrainResetsUnreadStreams drains the transport while a client gives no window for answers: the
// stream is reset before the last GOAWAY.
func TestDrainResetsUnreadStreams(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := r.rawClient(t)
	c.must(c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.openQuotas()
	c.must(c.fr.WriteData(1, false, prefixed(marshal(t, newReports(1, manyBuckets(10)...)))))
	_, conn := r.onlyConnection(t)
	await(t, "an answer waits", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.h2.Buffered() > 0
	})
	drained := make(chan struct{})
	go func() { r.drain(); close(drained) }()
	reset := false
	for last := uint32(1<<31 - 1); last != 1; {
		f, err := c.fr.ReadFrame()
		must.OK(t, err)
		switch f := f.(type) {
		case *http2.PingFrame:
			c.must(c.fr.WritePing(true, f.Data))
		case *http2.RSTStreamFrame:
			reset = f.StreamID == 1
		case *http2.GoAwayFrame:
			last = f.LastStreamID
		}
	}
	if !reset {
		t.Error("the stream continues")
	}
	<-drained
	await(t, "no stream", func() bool { return metricValue(t, s, "sluice_quota_streams") == 0 })
}

// TestQuotasCountAgainstMemory has the quota service use much memory: the connection that buffers
// the most is closed.
func TestQuotasCountAgainstMemory(t *testing.T) {
	t.Parallel()
	r := serve(t, service(t, answer.Settings{}, dividedRule))
	c := r.rawClient(t)
	w, conn := r.onlyConnection(t)
	await(t, "the connection has begun", func() bool { return conn.activity.gotSettings.Load() })
	w.buffered.set(&conn.buffered, 1000)
	w.buffered.shed()
	if conn.closed.Load() {
		t.Fatal("the connection is closed")
	}
	w.buffered.reserved = func() int64 { return maxBuffered - 999 }
	if w.buffered.shed(); !conn.closed.Load() {
		t.Error("the connection continues")
	}
	_ = c.conn.Close()
}
