package builtin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const dividedRule = `
domain: d
descriptors:
  - { key: k, rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {} } }
`

func init() { newQuotas = newDivision } //nolint:gochecknoinits // so that deleting this file suffices

// newDivision implements newQuotas. The clock stands still while passed is negative.
func newDivision(t *testing.T, s *answer.Service, passed *atomic.Int64) quota.Service {
	t.Helper()
	now := clock.New()
	q := rlqs.New(quota.Options{
		Elapsed: func() time.Duration {
			if stands := passed.Load(); stands < 0 {
				return time.Duration(-stands)
			}
			return now.Elapsed() + time.Duration(passed.Load())
		},
		Rules: s.Rules, Count: s.CountQuota, Metrics: s.Metrics(), Panics: telemetry.NewPanics(s.Metrics().Panics, zap.NewNop()),
	})
	passed.Store(int64(time.Hour))
	t.Cleanup(q.Close)
	return q
}

// metricValue returns a metric without labels.
func metricValue(t *testing.T, s *answer.Service, name string) float64 {
	t.Helper()
	families, err := s.Metrics().Registry.Gather()
	must.OK(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// newReports returns a report of the given number of requests for each bucket.
func newReports(requests uint64, buckets ...string) *rlqsv3.RateLimitQuotaUsageReports {
	m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
	for _, b := range buckets {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId:    &rlqsv3.BucketId{Bucket: map[string]string{"sluice": "k", "k": b}},
			TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: requests,
		})
	}
	return m
}

type quotaClient = rlqsv3.RateLimitQuotaService_StreamRateLimitQuotasClient

func openQuotas(t *testing.T, r *running) quotaClient {
	t.Helper()
	stream, err := rlqsv3.NewRateLimitQuotaServiceClient(r.dial(t)).StreamRateLimitQuotas(t.Context())
	must.OK(t, err)
	return stream
}

func send(t *testing.T, c quotaClient, m *rlqsv3.RateLimitQuotaUsageReports) {
	t.Helper()
	must.OK(t, c.Send(m))
}

// receiveShare waits for the share of a bucket, and returns it in tokens per hour.
func receiveShare(t *testing.T, c quotaClient, bucket string) uint32 {
	t.Helper()
	for {
		m, err := c.Recv()
		must.OK(t, err)
		for _, a := range m.GetBucketAction() {
			if a.GetBucketId().GetBucket()["k"] == bucket {
				return a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetTokensPerFill().GetValue()
			}
		}
	}
}

// TestQuotas has Envoys share a limit, more of them than reflection allows streams.
func TestQuotas(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := openQuotas(t, r)
	send(t, c, newReports(1000, "a"))
	if got := receiveShare(t, c, "a"); got != 360_000 {
		t.Errorf("one Envoy gets %d an hour, want all", got)
	}
	for i := range 50 {
		c, bucket := openQuotas(t, r), strconv.Itoa(i)
		send(t, c, newReports(1000, bucket))
		if got := receiveShare(t, c, bucket); got != 360_000 {
			t.Fatalf("Envoy %d gets %d an hour, want all", i, got)
		}
	}
}

// TestReportsOfManyStreams sends, on many streams of a connection, more than the initial window, in
// small reports.
func TestReportsOfManyStreams(t *testing.T) {
	t.Parallel()
	r := serve(t, service(t, answer.Settings{}, dividedRule))
	conn := r.dial(t)
	for stream := range 20 {
		c, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
		must.OK(t, err)
		for i := range 100 {
			send(t, c, newReports(1000, fmt.Sprint(stream, " ", i), strings.Repeat("long", 100)))
		}
		receiveShare(t, c, fmt.Sprint(stream, " 99"))
	}
}

// TestQuotasMove has a second Envoy join one that has the complete limit: the first must confirm a
// smaller share before the second gets any.
func TestQuotasMove(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	a, b := openQuotas(t, r), openQuotas(t, r)
	send(t, a, newReports(1000, "x"))
	if got := receiveShare(t, a, "x"); got != 360_000 {
		t.Fatalf("one Envoy gets %d an hour, want all", got)
	}
	send(t, b, newReports(1000, "x"))
	less := receiveShare(t, a, "x")
	var got uint32
	for got == 0 {
		got = receiveShare(t, b, "x")
	}
	if less == 0 || less+got > 360_000 {
		t.Errorf("they get %d and %d", less, got)
	}
}

// TestLargeReport sends a report of 5 MB, with IDs of many sizes. Those that are not too large are
// answered, and nothing is buffered.
func TestLargeReport(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := openQuotas(t, r)
	ids := []string{"first"}
	for i := range 100 {
		ids = append(ids, strings.Repeat("x", 50_000)+strconv.Itoa(i))
	}
	m := newReports(10, append(ids, "last")...)
	if size := proto.Size(m); size < 5_000_000 {
		t.Fatalf("the report has %d bytes", size)
	}
	send(t, c, m)
	if got := receiveShare(t, c, "last"); got != 360_000 {
		t.Errorf("the last bucket gets %d", got)
	}
	if w, conn := r.onlyConnection(t); w.buffered.bytes.Load() > 100_000 || conn.h2.MemoryBytes() > 200_000 {
		t.Errorf("%d bytes are used", conn.h2.MemoryBytes())
	}
}

// openQuotas sends the headers of a quota stream.
func (c *rawClient) openQuotas() {
	c.t.Helper()
	c.path = "/" + quota.ServiceName + "/" + quota.MethodName
	c.startCall(c.next, c.block(0))
	c.next += 2
}

// manyBuckets returns n bucket names. More than a stream may have are an error of the client.
func manyBuckets(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("bucket-", i)
	}
	return all
}

// TestQuotaClientThatNeverReads reports many buckets repeatedly and gives no window for answers: one
// message is queued, without further work, and other clients are not affected. The others are sent
// when there is a window.
func TestQuotaClientThatNeverReads(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	r.passed.Store(-int64(2 * time.Hour)) // a stream that receives nothing for 30 seconds ends
	c := r.rawClient(t)
	c.must(c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	go func() { // reads, so that the server's writes do not block
		for {
			if _, err := c.fr.ReadFrame(); err != nil {
				return
			}
		}
	}()
	c.openQuotas()
	message := prefixed(marshal(t, newReports(1, manyBuckets(500)...)))
	for range 200 {
		for rest := message; len(rest) > 0; {
			n := min(len(rest), 4000)
			c.must(c.fr.WriteData(1, false, rest[:n]))
			rest = rest[n:]
		}
	}
	_, conn := r.onlyConnection(t)
	await(t, "all reports are read", func() bool { return metricValue(t, s, "sluice_quota_reports_total") == 200 })
	var stream *quotaStream
	waits := func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		for stream = range conn.quotaStreams {
			return stream.pending && !stream.queued.Load()
		}
		return false
	}
	await(t, "the stream waits and is not queued", waits)
	stream.queue()
	await(t, "the stream waits again", waits)
	conn.mu.Lock()
	sent := stream.seq
	held := conn.h2.MemoryBytes()
	conn.mu.Unlock()
	if sent > 5 || held > 400<<10 {
		t.Errorf("%d batches of actions were sent, want the five of one message; they use %d bytes", sent, held)
	}
	d := openQuotas(t, r)
	send(t, d, newReports(1, "another"))
	receiveShare(t, d, "another")
	c.must(c.fr.WriteWindowUpdate(0, 1<<20))
	c.must(c.fr.WriteWindowUpdate(1, 1<<20))
	await(t, "everything is sent", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return stream.unsent == 0 && !stream.pending
	})
}

type confirmations struct {
	quota.Stream

	of []uint64
}

func (c *confirmations) Confirm(seq uint64) { c.of = append(c.of, seq) }

// TestMarksConfirmTheirMessages acknowledges marks of older messages, whose numbers have more bits
// than marks.
func TestMarksConfirmTheirMessages(t *testing.T) {
	c := &confirmations{}
	q := &quotaStream{quota: c, seq: 1<<24 + 1}
	for _, mark := range []uint32{1<<24 - 1, 0, 1} {
		q.MarkAcknowledged(mark)
	}
	if want := []uint64{1<<24 - 1, 1 << 24, 1<<24 + 1}; !slices.Equal(c.of, want) {
		t.Errorf("confirmed %v, want %v", c.of, want)
	}
}

// TestQuotaStreamsEnd ends streams, from the client's side and from ours.
func TestQuotaStreamsEnd(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	streams := func(want float64) func() bool {
		return func() bool { return metricValue(t, s, "sluice_quota_streams") == want }
	}
	begun := 0
	begin := func(ctx context.Context) quotaClient {
		c, err := rlqsv3.NewRateLimitQuotaServiceClient(r.dial(t)).StreamRateLimitQuotas(ctx)
		must.OK(t, err)
		begun++ // the resources of a closed stream are freed later
		send(t, c, newReports(1, strconv.Itoa(begun)))
		receiveShare(t, c, strconv.Itoa(begun))
		return c
	}
	c := begin(t.Context())
	await(t, "one stream", streams(1))
	must.OK(t, c.CloseSend())
	if m, err := c.Recv(); err == nil {
		t.Errorf("after its end a stream received %v", m)
	}
	await(t, "the stream has ended", streams(0))
	ctx, cancel := context.WithCancel(t.Context())
	begin(ctx)
	cancel()
	await(t, "the stream was reset", streams(0))
	c = begin(t.Context())
	send(t, c, &rlqsv3.RateLimitQuotaUsageReports{Domain: "e"})
	for err := error(nil); err == nil; {
		if _, err = c.Recv(); err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("a stream that changes its domain ends with %v", err)
		}
	}
	await(t, "the stream was ended", streams(0))
	c = begin(t.Context())
	stopped := make(chan struct{})
	go func() { r.drain(); close(stopped) }()
	for err := error(nil); err == nil; {
		if _, err = c.Recv(); err != nil && status.Code(err) != codes.Unavailable {
			t.Errorf("at the end of the server a stream ends with %v", err)
		}
	}
	<-stopped
	await(t, "the stream has ended", streams(0))
}

// TestIncompleteReport closes the connection in the middle of a report.
func TestIncompleteReport(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, dividedRule)
	r := serve(t, s)
	c := r.rawClient(t)
	c.openQuotas()
	message := prefixed(marshal(t, newReports(1, "a", "b")))
	c.must(c.fr.WriteData(1, false, message[:len(message)-3]))
	await(t, "a stream", func() bool { return metricValue(t, s, "sluice_quota_usages_total") == 1 })
	_ = c.conn.Close()
	await(t, "no stream", func() bool { return metricValue(t, s, "sluice_quota_streams") == 0 })
}
