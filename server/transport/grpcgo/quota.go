package grpcgo

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// quotaBytes is a message of the rate limit quota service, passed through by the codec.
type quotaBytes struct{ bytes []byte }

// quotaStreams implements the rate limit quota service. grpc-go limits the size of reports, and
// cannot send a PING after a message. An assignment counts as confirmed when the client's second
// complete report after it arrives, 5 to 10 seconds later.
type quotaStreams struct {
	quota.Service
	others *transport.Interceptors
}

// quotaDesc replaces the generated description of RateLimitQuotaService.
var quotaDesc = grpc.ServiceDesc{
	ServiceName: quota.ServiceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: quota.MethodName, ClientStreams: true, ServerStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			quotas, ok := srv.(quotaStreams)
			if !ok {
				return status.Errorf(codes.Internal, "%T does not answer reports of quotas", srv)
			}
			return quotas.stream(stream)
		},
	}},
	Metadata: "envoy/service/rate_limit_quota/v3/rlqs.proto",
}

const quotaMethod = "/" + quota.ServiceName + "/" + quota.MethodName

// stream serves a stream until it ends. It can end while its client does not read: the sending and
// receiving goroutines end with the stream.
func (q quotaStreams) stream(stream grpc.ServerStream) error {
	wakes := make(chan struct{}, 1)
	client := quota.Peer{Client: access.ClientFromContext(stream.Context())}
	if p, ok := peer.FromContext(stream.Context()); ok {
		client.Identity = access.IdentityOf(p.AuthInfo, p.Addr)
		client.Address = transport.MachineOf(p.Addr)
	}
	st, err := q.Open(client, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer st.Close()
	ended := make(chan error, 2)
	ready := make(chan struct{}, 1)
	run := func(direction func() error) {
		var err error
		defer func() { ended <- err }()
		defer q.others.Recover(&err)
		err = direction()
	}
	go run(func() error { return receive(stream, st) })
	go run(func() error { return send(stream, st, ready) })
	for {
		select {
		case err := <-ended:
			return err
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-wakes:
		}
		if err := st.Err(); err != nil {
			return err
		}
		select {
		case ready <- struct{}{}:
		default:
		}
	}
}

// send sends messages when ready signals that there may be some, until the stream ends.
func send(stream grpc.ServerStream, st quota.Stream, ready <-chan struct{}) error {
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-ready:
		}
		for more := true; more; {
			var seq uint64
			m := &quotaBytes{}
			if m.bytes, seq, more = st.AppendMessage(nil); seq == 0 {
				break
			}
			if err := stream.SendMsg(m); err != nil {
				return err
			}
			st.MarkSent(seq)
		}
	}
}

// receive receives reports until the stream ends.
func receive(stream grpc.ServerStream, st quota.Stream) error {
	for {
		var m quotaBytes
		switch err := stream.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := st.Feed(m.bytes, true); err != nil {
			return err
		}
		st.ConfirmByReports()
	}
}
