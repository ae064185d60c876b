package xds

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// DialBy makes s connect with dial instead of over the network.
func (s *Source) DialBy(dial func(context.Context) (net.Conn, error)) {
	s.dialer = []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
	}
}

// Build is build.
func Build(resources []*anypb.Any, opt descriptors.Options) (*descriptors.Set, rules.Diagnostics) {
	return build(resources, opt)
}

// Wait is Backoff.wait.
func (b Backoff) Wait(failures int) time.Duration { return b.wait(failures) }
