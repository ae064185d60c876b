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

// passes adds to the time of the quota service, and has it look at its clock: a stream begins and ends.
func (r *running) passes(t *testing.T, conn grpc.ClientConnInterface, d time.Duration) {
	t.Helper()
	r.passed.Add(int64(d))
	c, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err == nil {
		err = c.CloseSend()
	}
	must.OK(t, err)
	if m, err := c.Recv(); err == nil {
		t.Errorf("a stream without a report brings %v", m)
	}
}

// TestQuotaStreamNeedsAReport has a stream without a report.
func TestQuotaStreamNeedsAReport(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := openQuotas(t, r)
	await(t, "a stream", func() bool { return counted(t, s, "sluice_quota_streams") == 1 })
	r.passes(t, r.dial(t), 10*time.Second)
	if m, err := c.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a stream without a report brings %v, %v", m, err)
	}
	await(t, "no stream", func() bool { return counted(t, s, "sluice_quota_streams") == 0 })
}

// TestUnreadQuotaStreamEnds has a client report more buckets than answers fit its window, and read none.
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
	send(t, c, reports(1, long...))
	await(t, "an answer waits", func() bool { return testutil.ToFloat64(s.Metrics().Quota.Assigned) >= 1 })
	other := r.dial(t)
	await(t, "the stream has ended", func() bool {
		// In steps: a clock that jumps looks like a process that stood still, which sends nothing for a while.
		r.passes(t, other, 200*time.Millisecond)
		return counted(t, s, "sluice_quota_streams") == 0
	})
}

// TestDrainResetsUnreadStreams has a client give no window for answers, and the transport drain: the stream ends before the client
// is told which stream was the last.
func TestDrainResetsUnreadStreams(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := r.rawClient(t)
	c.goes(c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.quotas()
	c.goes(c.fr.WriteData(1, false, framed(t, reports(1, manyBuckets(10)...))))
	_, conn := r.only(t)
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
			c.goes(c.fr.WritePing(true, f.Data))
		case *http2.RSTStreamFrame:
			reset = f.StreamID == 1
		case *http2.GoAwayFrame:
			last = f.LastStreamID
		}
	}
	if !reset {
		t.Error("the stream goes on")
	}
	<-drained
	await(t, "no stream", func() bool { return counted(t, s, "sluice_quota_streams") == 0 })
}

// TestQuotasCountAsMemory has the quota service hold much: the connection that holds the most besides is closed.
func TestQuotasCountAsMemory(t *testing.T) {
	t.Parallel()
	r := serve(t, service(t, answer.Settings{}, dividedRule))
	c := r.rawClient(t)
	w, conn := r.only(t)
	await(t, "the connection has begun", func() bool { return conn.activity.gotSettings.Load() })
	w.buffered.set(&conn.buffered, 1000)
	w.buffered.shed()
	if conn.closed.Load() {
		t.Fatal("the connection is closed")
	}
	w.buffered.reserved = func() int64 { return maxBuffered - 999 }
	if w.buffered.shed(); !conn.closed.Load() {
		t.Error("the connection goes on")
	}
	_ = c.conn.Close()
}
