package xds_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// stage is a server that the test controls message by message. Server and source run in a bubble
// with fake time.
type stage struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	t       *testing.T
	source  *xds.Source
	streams chan *stream
	updates []source.Update
	ignored []string
	// lost are the announced delays, and failures the reasons.
	lost     []time.Duration
	failures []error
}

// stream is a stream of a stage.
type stream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer

	t   *testing.T
	at  time.Time
	end chan error
}

func (s *stage) StreamAggregatedResources(server discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	st := &stream{server, s.t, time.Now(), make(chan error)}
	s.streams <- st
	select {
	case err := <-st.end:
		return err
	case <-server.Context().Done():
		return nil
	}
}

// usual is a backoff without jitter.
var usual = xds.Backoff{Initial: 10 * time.Second, Max: time.Minute, Factor: 2}

// play runs a source with a stage until the test returns. dial, if not nil, replaces the
// connection.
func play(t *testing.T, opt xds.Options, dial func(context.Context) (net.Conn, error), test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, streams: make(chan *stream)}
		l := bufconn.Listen(1 << 20)
		server := grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
		go func() { _ = server.Serve(l) }()
		defer server.Stop()
		if dial == nil {
			dial = l.DialContext
		}
		opt.Target = "passthrough:///stage"
		opt.RetryInterval = cmp.Or(opt.RetryInterval, time.Second)
		opt.MaxMessageBytes = cmp.Or(opt.MaxMessageBytes, 16<<20)
		opt.Backoff = cmp.Or(opt.Backoff, usual)
		load := opt.OnLoad
		opt.OnLoad = func(u source.Update) error {
			s.updates = append(s.updates, u)
			if load != nil {
				return load(u)
			}
			return nil
		}
		opt.OnAnswered, opt.OnConnected = func(bool) {}, func() {}
		opt.OnIgnored = func(url string) { s.ignored = append(s.ignored, url) }
		opt.OnDisconnected = func(err error, retry time.Duration) {
			s.lost, s.failures = append(s.lost, retry), append(s.failures, err)
		}
		source, err := xds.NewSource(opt)
		must.OK(t, err)
		source.DialBy(dial)
		s.source = source
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			source.Run(ctx)
		}()
		test(s)
		cancel()
		<-done
	})
}

// request returns the next request.
func (s *stream) request() *discovery.DiscoveryRequest {
	s.t.Helper()
	r, err := s.Recv()
	must.OK(s.t, err)
	return r
}

func (s *stream) respond(version, nonce, url string, resources ...*anypb.Any) {
	s.t.Helper()
	must.OK(s.t, s.Send(&discovery.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: url, Resources: resources}))
}

// expect checks a request's version and nonce and whether it is a NACK.
func (s *stream) expect(version, nonce string, nack bool) *discovery.DiscoveryRequest {
	s.t.Helper()
	r := s.request()
	if r.GetVersionInfo() != version || r.GetResponseNonce() != nonce || (r.GetErrorDetail() != nil) != nack {
		s.t.Errorf("request is %v, want version %q, nonce %q, NACK %t", r, version, nonce, nack)
	}
	if r.GetTypeUrl() != xds.TypeURL || len(r.GetResourceNames()) > 0 {
		s.t.Errorf("request is %v, want all of type %s", r, xds.TypeURL)
	}
	return r
}

// wire encodes a resource.
func wire(tb testing.TB, m *pb.RateLimitConfig) *anypb.Any {
	tb.Helper()
	b, err := proto.Marshal(m)
	must.OK(tb, err)
	return &anypb.Any{TypeUrl: xds.TypeURL, Value: b}
}

func TestProtocol(t *testing.T) {
	good, bad := wire(t, domain("a", 5)), wire(t, &pb.RateLimitConfig{Name: "bad"})
	opt := xds.Options{
		NodeID: "me", NodeMetadata: map[string]string{"zone": "z1"},
		Headers:       map[string][]string{"x-token": {"secret"}, "x-many": {"1", "2"}},
		RetryInterval: 3 * time.Second,
		Backoff:       xds.Backoff{Initial: 10 * time.Second, Max: time.Minute},
	}
	play(t, opt, nil, func(s *stage) {
		st := <-s.streams
		md, _ := metadata.FromIncomingContext(st.Context())
		if got := append(md.Get("x-token"), md.Get("x-many")...); !slices.Equal(got, []string{"secret", "1", "2"}) {
			t.Errorf("headers are %v", md)
		}
		first := st.expect("", "", false)
		if n := first.GetNode(); n.GetId() != "me" || n.GetUserAgentName() != "sluice" || !maps.Equal(n.GetMetadata().AsMap(), map[string]any{"zone": "z1"}) {
			t.Errorf("node is %v", n)
		}
		st.respond("v1", "n1", xds.TypeURL, good)
		st.expect("v1", "n1", false)

		// A resource of another type is not answered, since an answer would subscribe to it.
		st.respond("x", "nx", "type.googleapis.com/envoy.config.cluster.v3.Cluster")
		st.respond("v2", "n2", xds.TypeURL, bad)
		nack := st.expect("v1", "n2", true)
		if d := nack.GetErrorDetail(); d.GetCode() != int32(codes.InvalidArgument) || d.GetMessage() != "xds:bad: error: the domain is empty; every configuration must name its domain" {
			t.Errorf("the NACK has the text %v", d)
		}
		rejected := time.Now()
		if !slices.Equal(s.ignored, []string{"type.googleapis.com/envoy.config.cluster.v3.Cluster"}) {
			t.Errorf("the ignored resources are %v", s.ignored)
		}

		// Some servers answer a NACK with the same response: the answer is delayed, and it is not
		// loaded again.
		st.respond("v3", "n3", xds.TypeURL, bad)
		st.expect("v1", "n3", true)
		if got := time.Since(rejected); got != opt.RetryInterval {
			t.Errorf("the second NACK was sent %v after the first, want %v", got, opt.RetryInterval)
		}
		if len(s.updates) != 2 || s.updates[0].Err != nil || s.updates[1].Err == nil {
			t.Errorf("updates are %+v, want a valid one and then an error", s.updates)
		}
		st.end <- status.Error(codes.Unavailable, "going away")

		// A new stream begins with the active version and without a nonce. The active rules are not
		// loaded again, even with another version.
		st = <-s.streams
		st.expect("v1", "", false)
		if got := st.at.Sub(rejected.Add(opt.RetryInterval)); got != opt.Backoff.Initial {
			t.Errorf("the second stream was opened %v after the end of the first, want %v", got, opt.Backoff.Initial)
		}
		st.respond("v9", "m1", "", good)
		st.expect("v9", "m1", false)
		// The rejected response was reported last, so the return to the active rules is reported.
		if len(s.updates) != 3 || s.updates[2].Set != s.updates[0].Set {
			t.Errorf("updates are %+v, want the active set again", s.updates)
		}
		st.respond("v10", "m2", xds.TypeURL, good)
		st.expect("v10", "m2", false)
		if len(s.updates) != 3 {
			t.Errorf("%d updates, want no further one for the active rules", len(s.updates))
		}
	})
}

func TestRejectsRulesThatCannotBeActivated(t *testing.T) {
	full := errors.New(`domain "a": not enough memory`)
	opt := xds.Options{OnLoad: func(u source.Update) error {
		if u.Set != nil && !u.Set.Empty() {
			return full
		}
		return nil
	}}
	play(t, opt, nil, func(s *stage) {
		st := <-s.streams
		st.expect("", "", false)
		st.respond("v1", "n1", xds.TypeURL)
		st.expect("v1", "n1", false)
		st.respond("v2", "n2", xds.TypeURL, wire(t, domain("a", 5)))
		if got := st.expect("v1", "n2", true).GetErrorDetail().GetMessage(); got != full.Error() {
			t.Errorf("the NACK has the text %q, want %q", got, full)
		}
	})
}

// TestAcknowledgesRulesActivatedLater activates rejected rules later, with a table or with other
// defaults.
func TestAcknowledgesRulesActivatedLater(t *testing.T) {
	misfit := errors.New("the table has other columns")
	wrong, found := rulefile.ParseDefaults("defaults.yaml", []byte("{domain: c, defaults: [{rate_limit: {algorithm: leaky_bucket, slack: 4000000000}}]}"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	var waiting *source.Update
	opt := xds.Options{OnLoad: func(u source.Update) error {
		if waiting = nil; u.Err == nil && u.Set.Domains()[0] == "waits" {
			waiting = &u
			return misfit
		}
		return u.Err
	}}
	play(t, opt, nil, func(s *stage) {
		st := <-s.streams
		st.expect("", "", false)
		st.respond("v1", "n1", xds.TypeURL, wire(t, domain("a", 5)))
		st.expect("v1", "n1", false)
		st.respond("v2", "n2", xds.TypeURL, wire(t, domain("waits", 5)))
		st.expect("v1", "n2", true)
		waiting.Accepted()
		st.expect("v2", "n2", false)
		// The server sends the rules again, as on a new connection.
		st.respond("v2", "n3", xds.TypeURL, wire(t, domain("waits", 5)))
		st.expect("v2", "n3", false)
		// The rules become active while the answer is delayed.
		st.respond("v3", "n4", xds.TypeURL, wire(t, domain("waits", 6)))
		synctest.Wait()
		waiting.Accepted()
		st.expect("v3", "n4", false)
		// Another response was received meanwhile.
		st.respond("v4", "n5", xds.TypeURL, wire(t, domain("waits", 7)))
		st.expect("v3", "n5", true)
		late := waiting
		st.respond("v5", "n6", xds.TypeURL, wire(t, domain("b", 5)))
		st.expect("v5", "n6", false)
		late.Accepted()
		s.source.SetDefaults(wrong)
		st.respond("v6", "n7", xds.TypeURL, wire(t, domain("c", 5)))
		st.expect("v5", "n7", true)
		s.source.SetDefaults(nil)
		st.expect("v6", "n7", false)
		// Invalid rules were received meanwhile.
		st.respond("v7", "n8", xds.TypeURL, wire(t, domain("waits", 8)))
		st.expect("v6", "n8", true)
		late = waiting
		st.respond("v8", "n9", xds.TypeURL, wire(t, domain("", 5)))
		st.expect("v6", "n9", true)
		late.Accepted()
		st.respond("v9", "n10", xds.TypeURL, wire(t, domain("", 6)))
		st.expect("v7", "n10", true)
	})
}

func TestNACKIsBounded(t *testing.T) {
	long := domain("a", 5)
	wrong := make([]*pb.RateLimitDescriptor, 2000)
	for i := range wrong {
		wrong[i] = &pb.RateLimitDescriptor{Value: "v"}
	}
	for range 40 { // each error has a long path
		wrong = []*pb.RateLimitDescriptor{{Key: strings.Repeat("k", 60), Descriptors: wrong}}
	}
	long.Descriptors = append(long.Descriptors, wrong...)
	play(t, xds.Options{}, nil, func(s *stage) {
		st := <-s.streams
		st.expect("", "", false)
		st.respond("v1", "n1", xds.TypeURL, wire(t, long))
		text := st.expect("", "n1", true).GetErrorDetail().GetMessage()
		if len(text) > 1<<20+100 || !strings.HasSuffix(text, " more errors") {
			t.Errorf("the NACK has %d bytes and ends with %q", len(text), text[max(0, len(text)-100):])
		}
	})
}

// TestErrorsAreBounded checks that a response that contains only errors costs little: the number of
// errors is bounded in memory, in the log and in the NACK.
func TestErrorsAreBounded(t *testing.T) {
	empty := &pb.RateLimitConfig{Domain: "a", Descriptors: make([]*pb.RateLimitDescriptor, 100_000)}
	for i := range empty.GetDescriptors() {
		empty.Descriptors[i] = &pb.RateLimitDescriptor{}
	}
	_, found := xds.Build([]*anypb.Any{wire(t, empty)}, descriptors.Options{})
	if last := found[len(found)-1]; len(found) != 1001 || last.Message != "more than 1000 errors; the rest is not shown" {
		t.Errorf("%d diagnostics, the last is %s; want 1000, and one that counts the others", len(found), last)
	}
}

// TestChangesArePaced checks that the pause after a response is four times as long as its loading,
// but at most the retry interval. So a server that changes the rules all the time uses only a part
// of a CPU.
func TestChangesArePaced(t *testing.T) {
	load := time.Duration(0)
	opt := xds.Options{RetryInterval: 3 * time.Second, OnLoad: func(source.Update) error {
		time.Sleep(load) // fake time
		return nil
	}}
	play(t, opt, nil, func(s *stage) {
		st := <-s.streams
		st.expect("", "", false)
		change := func(version string) {
			st.respond(version, version, xds.TypeURL, wire(t, domain("a", uint32(1+len(version)))))
			st.expect(version, version, false)
		}
		var want time.Duration
		began := time.Now()
		for i, took := range []time.Duration{0, 0, 10 * time.Millisecond, time.Minute, 0, time.Second} {
			load = took
			want += took
			change(strings.Repeat("v", i+1))
			if got := time.Since(began); got != want {
				t.Errorf("change %d is active after %v, want %v", i, got, want)
			}
			want += min(4*took, opt.RetryInterval)
		}
	})
}

func TestBackoffAfterEndedStreams(t *testing.T) {
	play(t, xds.Options{}, nil, func(s *stage) {
		unavailable := status.Error(codes.Unavailable, "no")
		for range 5 {
			st := <-s.streams
			st.end <- unavailable
		}
		st := <-s.streams
		st.respond("v1", "n1", xds.TypeURL)
		st.request()
		st.expect("v1", "n1", false)
		st.end <- unavailable
		<-s.streams
		const s10 = 10 * time.Second
		want := []time.Duration{s10, 2 * s10, 4 * s10, time.Minute, time.Minute, s10}
		if !slices.Equal(s.lost, want) {
			t.Errorf("the announced delays are %v, want %v", s.lost, want)
		}
	})
}

// TestReconnectsEachInterval checks the intervals at which the source tries to reconnect.
func TestReconnectsEachInterval(t *testing.T) {
	const want = 3 * time.Second
	var dialed []time.Time
	dial := func(context.Context) (net.Conn, error) {
		dialed = append(dialed, time.Now())
		return nil, errors.New("no listener")
	}
	play(t, xds.Options{RetryInterval: want}, dial, func(s *stage) {
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if len(dialed) < 100 {
			t.Fatalf("%d attempts in five minutes", len(dialed))
		}
		distinct := map[time.Duration]bool{}
		for i := range dialed[1:] {
			wait := dialed[i+1].Sub(dialed[i])
			distinct[wait] = true
			if wait < want/2 || wait > want {
				t.Errorf("delay %d is %v, want between half of %v and all of it", i, wait, want)
			}
		}
		if len(distinct) < 50 {
			t.Errorf("only %d of %d delays are distinct", len(distinct), len(dialed)-1)
		}
		if err := s.failures[0]; !strings.Contains(err.Error(), "no listener") {
			t.Errorf("the failure is %v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		b        xds.Backoff
		failures int
		want     time.Duration
	}{
		{usual, 0, 10 * time.Second},
		{usual, 1, 20 * time.Second},
		{usual, 1000, time.Minute},
		{xds.Backoff{Initial: 10 * time.Second, Max: time.Minute, Factor: 0.5}, 7, 10 * time.Second}, // same as in envoyproxy/ratelimit
		{xds.Backoff{Initial: 10 * time.Second, Max: time.Minute, Factor: 1.5}, 2, 22500 * time.Millisecond},
		{xds.Backoff{Initial: time.Hour, Max: time.Hour, Factor: 1000}, 1 << 30, time.Hour},
		{xds.Backoff{Initial: time.Hour, Max: time.Minute, Factor: 2}, 0, time.Minute},
	} {
		if got := tt.b.Wait(tt.failures); got != tt.want {
			t.Errorf("%+v.wait(%d) = %v, want %v", tt.b, tt.failures, got, tt.want)
		}
		tt.b.Jitter = true
		for range 100 {
			if got := tt.b.Wait(tt.failures); got < tt.want/2 || got > tt.want {
				t.Errorf("%+v.wait(%d) = %v, want %v to %v", tt.b, tt.failures, got, tt.want/2, tt.want)
			}
		}
	}
}
