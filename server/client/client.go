// Package client provides clients of a running sluice for the commands: a [Client] of the
// rate-limit service, and a [Debug] client of the API for operators, which package admin
// implements.
package client

import (
	"context"
	"fmt"
	"math"
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/access"
)

// Client is a client of a rate-limit service, for testing it by hand. Its methods may be called
// concurrently.
type Client struct {
	conn *grpc.ClientConn
	stub rls.RateLimitServiceClient
}

// Dial returns a client of the service at addr: host:port, unix:///path or unix:@name. It connects
// at the first call. A nil secure means plain text.
func Dial(addr string, secure *access.TLS) (*Client, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = secure
	}
	target := "passthrough:///" + addr
	if name, ok := strings.CutPrefix(addr, "unix:@"); ok {
		target = "unix-abstract:" + name
	} else if strings.HasPrefix(addr, "unix:") {
		target = addr
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return &Client{conn: conn, stub: rls.NewRateLimitServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Answer is a reply as text.
type Answer struct {
	OverLimit bool
	// Statuses contains the status of each descriptor.
	Statuses []string
	// Limited is true if a limit or an unlimited rule applies to one of the descriptors.
	Limited bool
	// JSON is the complete reply.
	JSON string
}

// Call sends a request. Hits and overrides of descriptors are only sent if they are set.
func (c *Client) Call(ctx context.Context, domain string, ds []descriptors.Descriptor) (Answer, error) {
	request := &rls.RateLimitRequest{Domain: domain}
	for _, d := range ds {
		m := &rlcommon.RateLimitDescriptor{IsNegativeHits: d.Refund}
		for _, e := range d.Entries {
			m.Entries = append(m.Entries,
				&rlcommon.RateLimitDescriptor_Entry{Key: string(e.Key), Value: string(e.Value)})
		}
		if d.HasHits {
			m.HitsAddend = wrapperspb.UInt64(d.Hits)
		}
		if d.HasOverride {
			m.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: d.Override.RequestsPerUnit, Unit: typev3.RateLimitUnit(d.Override.Unit),
			}
			if d.Override.UnitMultiplier > 0 {
				m.Limit.UnitMultiplier = wrapperspb.UInt32(d.Override.UnitMultiplier)
			}
		}
		request.Descriptors = append(request.Descriptors, m)
	}
	reply, err := c.stub.ShouldRateLimit(ctx, request)
	if err != nil {
		st := status.Convert(err)
		return Answer{}, fmt.Errorf("%v: %s", st.Code(), st.Message())
	}
	text, err := protojson.Marshal(reply)
	if err != nil {
		return Answer{}, fmt.Errorf("print reply: %w", err)
	}
	a := Answer{OverLimit: reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, JSON: string(text)}
	for _, s := range reply.GetStatuses() {
		a.Statuses = append(a.Statuses, statusText(s))
		a.Limited = a.Limited || s.GetCurrentLimit() != nil || s.GetLimitRemaining() > 0
	}
	return a, nil
}

func statusText(s *rls.RateLimitResponse_DescriptorStatus) string {
	text := s.GetCode().String()
	l := s.GetCurrentLimit()
	if l == nil {
		if s.GetLimitRemaining() == math.MaxUint32 {
			return text + ", unlimited"
		}
		return text + ", no limit matches"
	}
	window := " at once"
	if l.GetUnit() != 0 {
		window = "/" + strings.ToLower(l.GetUnit().String())
		if n := l.GetUnitMultiplier().GetValue(); n > 1 {
			window = fmt.Sprintf("/%d%s", n, window[1:])
		}
	}
	text += fmt.Sprintf(", %d left of %d%s", s.GetLimitRemaining(), l.GetRequestsPerUnit(), window)
	if name := l.GetName(); name != "" {
		text += " (" + name + ")"
	}
	if l.GetUnit() == 0 {
		return text
	}
	return text + fmt.Sprintf(", resets in %v", s.GetDurationUntilReset().AsDuration())
}
