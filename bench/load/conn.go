package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// conn is a connection to the service or to an Envoy.
type conn interface {
	request(ctx context.Context, request *rls.RateLimitRequest) (rls.RateLimitResponse_Code, error)
	io.Closer
}

func dial(ctx context.Context, c *Config, addr string) (conn, error) {
	if c.HTTP {
		n, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		// A blocked read does not notice the end of ctx.
		context.AfterFunc(ctx, func() { _ = n.Close() })
		return &httpConn{Conn: n, in: bufio.NewReader(n)}, nil
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if c.Connections > 1000 {
		options = append(options, grpc.WithReadBufferSize(4<<10)) // the default buffers would take 300 MB
	}
	if !strings.HasPrefix(addr, "unix:") {
		addr = "passthrough:///" + addr
	}
	// One ClientConn is one HTTP/2 connection, like that of an Envoy worker.
	cc, err := grpc.NewClient(addr, options...)
	if err != nil {
		return nil, err
	}
	return &grpcConn{ClientConn: cc, client: rls.NewRateLimitServiceClient(cc)}, nil
}

// grpcConn calls the service. Any number of workers may share it.
type grpcConn struct {
	*grpc.ClientConn

	client rls.RateLimitServiceClient
}

func (c *grpcConn) request(ctx context.Context, request *rls.RateLimitRequest) (rls.RateLimitResponse_Code, error) {
	response, err := c.client.ShouldRateLimit(ctx, request)
	return response.GetOverallCode(), err
}

// httpConn sends requests to an Envoy, which calls the service. It belongs to one worker.
type httpConn struct {
	net.Conn

	in  *bufio.Reader
	out []byte
}

func (c *httpConn) request(_ context.Context, request *rls.RateLimitRequest) (rls.RateLimitResponse_Code, error) {
	c.out = append(c.out[:0], "GET / HTTP/1.1\r\nhost: bench\r\n"...)
	for _, d := range request.GetDescriptors() {
		for _, e := range d.GetEntries() {
			c.out = fmt.Appendf(c.out, "%s: %s\r\n", e.GetKey(), e.GetValue())
		}
	}
	if _, err := c.Write(append(c.out, "\r\n"...)); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return rls.RateLimitResponse_OK, nil
	case http.StatusTooManyRequests:
		return rls.RateLimitResponse_OVER_LIMIT, nil
	}
	return rls.RateLimitResponse_UNKNOWN, nil
}
