package xds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
)

// ErrTooLarge means that a response is larger than [Options.MaxMessageBytes]. It ends the stream.
var ErrTooLarge = errors.New("the server's response is too large")

// Options configure a [Source]. [Source.Run] calls the callbacks, one at a time.
// [Source.SetDefaults] calls OnLoad, too. The tags are flags of cmd/sluice, with the only defaults
// and ranges.
type Options struct {
	Target       string            `name:"xds-addr" placeholder:"ADDR" help:"Management server (host:port) that rules come from, instead of files."`
	NodeID       string            `name:"xds-node-id" default:"default" placeholder:"ID" help:"Node ID that is sent to the server."`
	NodeMetadata map[string]string `name:"xds-node-metadata" mapsep:"," placeholder:"KEY=VALUE" help:"Node metadata that is sent to the server. Separate several by commas, or repeat the flag."`
	// RetryInterval is short, since an attempt is cheap and the rules may be outdated until it
	// succeeds. It is also the minimum time between rejections, and the maximum pause after loading
	// a response.
	RetryInterval time.Duration `name:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" hidden:"" range:"1ns..87600h" default:"1s" placeholder:"TIME" help:"Interval between attempts to connect, shortened at random by up to half."`
	Backoff       Backoff       `embed:""`
	// MaxMessageBytes is enough for some 200,000 descriptors by default.
	MaxMessageBytes int `name:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" hidden:"" type:"size" range:"1..1GiB" default:"16MiB" placeholder:"SIZE" help:"Maximum size of a response, which contains all rules."`

	// Credentials secure the connection; nil means plain text.
	Credentials credentials.TransportCredentials `kong:"-"`
	// Headers are sent with each stream. Names are lower case.
	Headers map[string][]string `kong:"-"`
	// Rules are the options of the compiler.
	Rules descriptors.Options `kong:"-"`

	// OnLoad is called with the result of each response that differs from the one before. If it
	// returns an error, the Set is rejected.
	OnLoad func(source.Update) error `kong:"-"`
	// OnAnswered is called after each ACK and NACK.
	OnAnswered func(ack bool) `kong:"-"`
	// OnConnected is called when a stream is open.
	OnConnected func() `kong:"-"`
	// OnDisconnected is called when a stream has ended or could not be opened, with the time until
	// the next attempt.
	OnDisconnected func(err error, retry time.Duration) `kong:"-"`
	// OnIgnored is called for a response of another type.
	OnIgnored func(typeURL string) `kong:"-"`
}

// Source follows the rules of a management server. Run must be called once; other methods may be
// called concurrently.
type Source struct {
	opt   Options
	node  *corev3.Node
	rules state
	// dialer contains additional options for connections. Only tests set it.
	dialer []grpc.DialOption
}

// NewSource returns a Source. It does not connect before [Source.Run].
func NewSource(opt Options) (*Source, error) {
	if opt.Credentials == nil {
		opt.Credentials = insecure.NewCredentials()
	}
	s := &Source{
		opt:   opt,
		node:  &corev3.Node{Id: opt.NodeID, UserAgentName: "sluice"},
		rules: state{opt: opt.Rules, reload: source.Reload[reading]{OnLoad: opt.OnLoad}, accepted: make(chan struct{}, 1)},
	}
	if len(opt.NodeMetadata) > 0 {
		s.node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for k, v := range opt.NodeMetadata {
			s.node.Metadata.Fields[k] = structpb.NewStringValue(v)
		}
	}
	conn, err := s.dial() // does not connect yet, but checks the target
	if err != nil {
		return nil, err
	}
	return s, conn.Close()
}

// SetDefaults sets the defaults of the rules of the last response, for which it calls OnLoad, and
// of later ones. If the two do not compile together, the active rules stay.
func (s *Source) SetDefaults(d *rules.Defaults) { s.rules.setDefaults(d) }

// Run follows the server until ctx ends.
func (s *Source) Run(ctx context.Context) {
	failures := 0
	for {
		opened, responded, err := s.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if responded {
			failures = 0
		}
		wait := jitter(s.opt.RetryInterval)
		if opened {
			wait = s.opt.Backoff.wait(failures)
			failures++
		}
		s.opt.OnDisconnected(err, wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// Pings detect a dead server. By default a grpc-go server permits one every five minutes.
const (
	pingAfter   = 5*time.Minute + 10*time.Second
	pingTimeout = 20 * time.Second
)

func (s *Source) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(s.opt.Target, append(s.dialer,
		grpc.WithTransportCredentials(s.opt.Credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.opt.MaxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDisableServiceConfig(), // only Run retries
		grpc.WithUserAgent("sluice"))...)
}

// stream opens a stream on a new connection and follows it to its end. opened is true if the stream
// was opened, and responded if the server sent a response on it.
func (s *Source) stream(ctx context.Context) (opened, responded bool, err error) {
	conn, err := s.dial()
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, s.opt.Headers))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, false, fmt.Errorf("connect: %w", err)
	}
	s.opt.OnConnected()
	// An error of Send means that the stream has ended; Recv returns the reason.
	_ = stream.Send(s.request(""))
	t := session{source: s, stream: stream}
	for received := t.receive(); ; {
		select {
		case r := <-received:
			if r.err != nil {
				return true, responded, wrapTooLarge(r.err)
			}
			responded = true
			if !t.respond(ctx, r.response) {
				return true, responded, ctx.Err()
			}
			received = t.receive()
		case <-s.rules.accepted:
			if t.rejected && s.rules.lastError() == nil {
				t.answer(nil)
			}
		}
	}
}

// session is a stream with the server.
type session struct {
	source       *Source
	stream       discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	nonce        string      // nonce of the last response
	rejected     bool        // whether the last answer was a NACK
	rejectedLast *time.Timer // expires RetryInterval after the last NACK
}

// streamResult is a response, or the error that ended the stream.
type streamResult struct {
	response *discovery.DiscoveryResponse
	err      error
}

// receive receives one response. Its goroutine ends with the stream.
func (t *session) receive() <-chan streamResult {
	c := make(chan streamResult, 1)
	go func() {
		response, err := t.stream.Recv()
		c <- streamResult{response, err}
	}()
	return c
}

// respond loads a response and answers it. It returns false if ctx ended.
func (t *session) respond(ctx context.Context, response *discovery.DiscoveryResponse) bool {
	s := t.source
	if url := response.GetTypeUrl(); url != TypeURL && url != "" {
		s.opt.OnIgnored(url)
		return true
	}
	t.nonce = response.GetNonce()
	began := time.Now() //nolint:forbidigo // only for the duration
	err := s.rules.apply(response.GetVersionInfo(), response.GetResources())
	took := time.Since(began)
	if err != nil {
		// go-control-plane's snapshot cache answers a NACK immediately with the same response. The
		// pause limits the rate of that loop.
		if t.rejectedLast != nil {
			select {
			case <-t.rejectedLast.C:
			case <-ctx.Done():
			}
		}
		t.rejectedLast = time.NewTimer(s.opt.RetryInterval)
		err = s.rules.lastError() // the rules may have become active meanwhile
	}
	t.answer(err)
	// A faulty server may alternate between two responses. The pause before the next one bounds the
	// load: compiling takes at most a fifth of a CPU, or one response is loaded in each interval.
	return sleep(ctx, min(idlePerLoad*took, s.opt.RetryInterval))
}

// answer sends an ACK of the last response, or a NACK with the errors.
func (t *session) answer(err error) {
	request := t.source.request(t.nonce)
	if t.rejected = err != nil; t.rejected {
		request.ErrorDetail = status.New(codes.InvalidArgument, rejection(err)).Proto()
	}
	_ = t.stream.Send(request) // Recv returns the error
	t.source.opt.OnAnswered(!t.rejected)
}

// idlePerLoad is the pause after a response, as a multiple of the time that loading it took.
const idlePerLoad = 4

// request returns a request for all resources, with the active version.
func (s *Source) request(nonce string) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{
		Node: s.node, TypeUrl: TypeURL, VersionInfo: s.rules.activeVersion(), ResponseNonce: nonce,
	}
}

// wrapTooLarge wraps gRPC's error for a response that is too large in [ErrTooLarge].
func wrapTooLarge(err error) error {
	if status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(err.Error(), "received message larger than max") {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}

// Backoff configures the delay after a stream has ended, which grows with each stream that ends
// before its first response.
type Backoff struct {
	Initial time.Duration `name:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" hidden:"" range:"1ns..87600h" default:"10s" placeholder:"TIME" help:"Delay before reconnecting after a stream has ended."`
	Max     time.Duration `name:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" hidden:"" range:"1ns..87600h" default:"60s" placeholder:"TIME" help:"Maximum delay before reconnecting."`
	// Factor is 0.5 by default in envoyproxy/ratelimit.
	Factor float64 `name:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" hidden:"" default:"2" placeholder:"FACTOR" help:"Factor by which the delay grows with each attempt. 1 or less keeps it constant."`
	// Without Jitter all clients of one server reconnect at the same time.
	Jitter bool `name:"XDS_CLIENT_BACKOFF_JITTER" hidden:"" default:"true" negatable:"" help:"Shorten each delay at random by up to half."`
}

// wait returns the delay after the given number of consecutive failures.
func (b Backoff) wait(failures int) time.Duration {
	wait := float64(min(b.Initial, b.Max))
	for range failures {
		if b.Factor <= 1 || wait >= float64(b.Max) {
			break
		}
		wait *= b.Factor
	}
	d := time.Duration(min(wait, float64(b.Max)))
	if b.Jitter {
		d = jitter(d)
	}
	return d
}

// jitter returns a random duration from half of d to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // nothing secret
}

// sleep waits for d. It returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
