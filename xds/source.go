package xds

import (
	"context"
	"errors"
	"fmt"
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

// ErrTooLarge ends a stream when a response is larger than [Options.MaxMessageBytes].
var ErrTooLarge = errors.New("the server's response is too large")

// Options say which server a [Source] asks and what it calls. [Source.Run] calls the
// callbacks, one at a time. [Source.SetDefaults] calls OnLoad too. The tags are flags of
// cmd/sluice, with their defaults and ranges; there is no other default.
type Options struct {
	Target       string            `name:"addr" placeholder:"ADDR" help:"Management server (host:port) that rules come from, instead of files."`
	NodeID       string            `default:"default" placeholder:"ID" help:"Node ID that is sent to the server."`
	NodeMetadata map[string]string `mapsep:"," placeholder:"KEY=VALUE" help:"Node metadata that is sent to the server. Separate several by commas, or repeat the flag."`
	// RetryInterval is short: an attempt costs little, and until it succeeds the rules are old. It
	// is also the least time between rejections, and the longest that a response waits after the one before.
	RetryInterval time.Duration `range:"1ns..87600h" default:"1s" placeholder:"TIME" help:"Interval between attempts to connect, shortened at random by up to half."`
	Backoff       Backoff       `embed:"" prefix:"backoff-"`
	// MaxMessageBytes is some 200,000 descriptors.
	MaxMessageBytes int `name:"max-message" type:"size" range:"1..1GiB" default:"16MiB" placeholder:"SIZE" help:"Maximum size of a response, which contains all rules."`

	// Credentials secure the connection. Nil means plain text.
	Credentials credentials.TransportCredentials `kong:"-"`
	// Headers go with each stream. Names are lower case.
	Headers map[string][]string `kong:"-"`
	// Rules say how the rules compile.
	Rules descriptors.Options `kong:"-"`

	// OnLoad is called with the result of each response that differs from the one
	// before. If it returns an error for a Set, the Set is rejected.
	OnLoad func(source.Update) error `kong:"-"`
	// OnAnswered is called after each ACK and NACK.
	OnAnswered func(ack bool) `kong:"-"`
	// OnConnected is called when a stream is open.
	OnConnected func() `kong:"-"`
	// OnDisconnected is called when a stream has ended or could not begin, with the
	// time until the next attempt.
	OnDisconnected func(err error, retry time.Duration) `kong:"-"`
	// OnIgnored is called for a response of a type that was not asked for.
	OnIgnored func(typeURL string) `kong:"-"`
}

// Source follows the rules of a management server. One goroutine runs it; the
// other methods may be called concurrently.
type Source struct {
	opt   Options
	node  *corev3.Node
	rules state
	// dialer is the network, except in tests.
	dialer []grpc.DialOption
}

// NewSource returns a Source. It does nothing before [Source.Run].
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
	conn, err := s.dial() // connects to nothing yet, but checks the target
	if err != nil {
		return nil, err
	}
	return s, conn.Close()
}

// SetDefaults compiles the rules with other defaults, both those of the last response, for
// which it calls OnLoad, and those to come. While the two do not compile together, what is
// in force stays.
func (s *Source) SetDefaults(d *rules.Defaults) { s.rules.setDefaults(d) }

// Run follows the server until ctx ends.
func (s *Source) Run(ctx context.Context) {
	failures := 0
	for {
		opened, heard, err := s.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
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

// The pings by which a dead server is noticed. A server of grpc-go with its
// defaults allows one in five minutes.
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

// stream opens a stream on a connection of its own and follows it to its end.
// Opened says that the stream began, heard that it brought a response.
func (s *Source) stream(ctx context.Context) (opened, heard bool, err error) {
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
	// A failing Send says only that the stream has ended. Recv says why.
	_ = stream.Send(s.request(""))
	t := talk{source: s, stream: stream}
	for received := t.receive(); ; {
		select {
		case r := <-received:
			if r.err != nil {
				return true, heard, explain(r.err)
			}
			heard = true
			if !t.respond(ctx, r.response) {
				return true, heard, ctx.Err()
			}
			received = t.receive()
		case <-s.rules.accepted:
			if t.rejected && s.rules.verdict() == nil {
				t.answer(nil)
			}
		}
	}
}

// talk is one stream with the server.
type talk struct {
	source       *Source
	stream       discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	nonce        string      // of the last response
	rejected     bool        // the last answer is a NACK
	rejectedLast *time.Timer // since the last NACK
}

// received is a response, or the end of a stream.
type received struct {
	response *discovery.DiscoveryResponse
	err      error
}

// receive receives one response. The goroutine ends with the stream.
func (t *talk) receive() <-chan received {
	c := make(chan received, 1)
	go func() {
		response, err := t.stream.Recv()
		c <- received{response, err}
	}()
	return c
}

// respond loads a response and answers it. It reports whether ctx still holds.
func (t *talk) respond(ctx context.Context, response *discovery.DiscoveryResponse) bool {
	s := t.source
	if url := response.GetTypeUrl(); url != TypeURL && url != "" {
		s.opt.OnIgnored(url)
		return true
	}
	t.nonce = response.GetNonce()
	began := time.Now() //nolint:forbidigo // as the timers here
	err := s.rules.take(response.GetVersionInfo(), response.GetResources())
	took := time.Since(began)
	if err != nil {
		// go-control-plane's snapshot cache answers a NACK at once with the same
		// response. Without a pause the two would go on like that forever.
		if t.rejectedLast != nil {
			select {
			case <-t.rejectedLast.C:
			case <-ctx.Done():
			}
		}
		t.rejectedLast = time.NewTimer(s.opt.RetryInterval)
		err = s.rules.verdict() // they may be active by now
	}
	t.answer(err)
	// A server in trouble may alternate between two responses. The next one is not read for some time, so
	// that compiling and loading them takes a fifth of a processor, or as much as one an interval takes.
	return sleep(ctx, min(idlePerLoad*took, s.opt.RetryInterval))
}

// answer sends an ACK of the last response, or a NACK with the reasons.
func (t *talk) answer(err error) {
	request := t.source.request(t.nonce)
	if t.rejected = err != nil; t.rejected {
		request.ErrorDetail = status.New(codes.InvalidArgument, rejection(err)).Proto()
	}
	_ = t.stream.Send(request) // see stream
	t.source.opt.OnAnswered(!t.rejected)
}

// idlePerLoad is how much longer than a response took to load the next one waits.
const idlePerLoad = 4

// request returns a request for all resources, with the version in force.
func (s *Source) request(nonce string) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{
		Node: s.node, TypeUrl: TypeURL, VersionInfo: s.rules.inForceVersion(), ResponseNonce: nonce,
	}
}

// explain turns gRPC's error for a response that is too large into [ErrTooLarge].
func explain(err error) error {
	if status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max") {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}
