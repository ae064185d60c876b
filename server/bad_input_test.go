package server

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// bytesCodec sends and receives raw bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not bytes")
	}
	*b = data.Materialize()
	return nil
}

func TestBadInputGetsAClearError(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	neighbour := r.dial(t)
	conn := r.dial(t, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	with := func(change func(*rls.RateLimitRequest)) []byte {
		m := simpleRequest()
		m.Descriptors[0].Entries[0].Value = "not the neighbour's"
		change(m)
		return marshal(t, m)
	}
	good := marshal(t, simpleRequest())
	for _, test := range []struct {
		name    string
		request []byte
		want    codes.Code
		message string
	}{
		{"empty domain", with(func(m *rls.RateLimitRequest) { m.Domain = "" }), codes.Unknown, "rate limit domain must not be empty"},
		{"no descriptors", with(func(m *rls.RateLimitRequest) { m.Descriptors = nil }), codes.Unknown, "rate limit descriptor list must not be empty"},
		{"above the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 5<<20) }), codes.ResourceExhausted, "--max-message allows 4194304"},
		{"far above the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 9<<20) }), codes.ResourceExhausted, "--max-message allows 4194304"},
		{"just below the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 4_190_000) }), codes.OK, ""},
		{"10,000 descriptors", with(func(m *rls.RateLimitRequest) {
			m.Descriptors = many(10_000)
		}), codes.ResourceExhausted, "10000 descriptors: at most 1000 are allowed"},
		{"key that is not UTF-8", bytes.Replace(good, []byte("k"), []byte{0xff}, 1), codes.OK, ""},
		{"hits of 2^64-1", with(func(m *rls.RateLimitRequest) { m.Descriptors[0].HitsAddend = wrapperspb.UInt64(1<<64 - 1) }), codes.OK, ""},
		{"override with unit 0", with(func(m *rls.RateLimitRequest) {
			m.Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}
		}), codes.OK, ""},
		{"override with unit 99", with(func(m *rls.RateLimitRequest) {
			m.Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit(99)}
		}), codes.OK, ""},
		{"truncated", good[:len(good)-1], codes.Internal, "not a valid"},
		{"over-long", append(bytes.Clone(good), 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f), codes.Internal, "not a valid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var reply []byte
			err := conn.Invoke(t.Context(), "/"+answer.ServiceName+"/ShouldRateLimit", test.request, &reply)
			if got := status.Convert(err); got.Code() != test.want || !strings.Contains(got.Message(), test.message) {
				t.Errorf("error is %v, want %v with %q", err, test.want, test.message)
			}
			checkOK(t, neighbour)
		})
	}
}

func many(n int) []*rlcommon.RateLimitDescriptor {
	ds := make([]*rlcommon.RateLimitDescriptor, n)
	for i := range ds {
		ds[i] = &rlcommon.RateLimitDescriptor{}
	}
	return ds
}
