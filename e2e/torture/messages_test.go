//go:build torture

package torture

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// rawCodec passes bytes through in both directions.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not a pointer to bytes")
	}
	*b = data.Materialize()
	return nil
}

// TestOddMessages concurrently sends messages at the limits of every bound and of protobuf, while
// other clients call. Sluice must answer messages that protobuf's decoder accepts, unless they
// exceed a bound.
func TestOddMessages(t *testing.T) {
	const limit = 64 << 10
	request := func(change func(*rls.RateLimitRequest)) []byte {
		r := Request(Key{Rule: "attacker", Value: "a"})
		change(r)
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
		must.OK(t, err)
		return b
	}
	plain := request(func(*rls.RateLimitRequest) {})
	// padded pads a message to the given size with an unknown field.
	padded := func(size int) []byte {
		const number = 1000
		head := protowire.AppendTag(slices.Clone(plain), number, protowire.BytesType)
		for n := size - len(head); ; n-- {
			if b := protowire.AppendBytes(head, make([]byte, n)); len(b) == size {
				return b
			}
		}
	}
	groups := func(deep int) []byte {
		b := slices.Clone(plain)
		for range deep {
			b = protowire.AppendTag(b, 1000, protowire.StartGroupType)
		}
		for range deep {
			b = protowire.AppendTag(b, 1000, protowire.EndGroupType)
		}
		return b
	}
	for name, m := range map[string][]byte{"padded": padded(limit), "deep": groups(9000)} {
		if err := proto.Unmarshal(m, new(rls.RateLimitRequest)); err != nil {
			t.Fatalf("invalid test message %s: %v", name, err)
		}
	}
	messages := []struct {
		name    string
		message []byte
		want    codes.Code
		// over is true if the answer is OVER_LIMIT.
		over bool
	}{
		{name: "64 KiB", message: padded(limit)},
		{name: "64 KiB - 1", message: padded(limit - 1)},
		{name: "64 KiB + 1", message: padded(limit + 1), want: codes.ResourceExhausted},
		{name: "4 MiB", message: padded(4 << 20), want: codes.ResourceExhausted},
		{name: "10000 descriptors", message: request(func(r *rls.RateLimitRequest) {
			r.Descriptors = slices.Repeat([]*rlcommon.RateLimitDescriptor{{}}, 10_000)
		}), want: codes.ResourceExhausted},
		{name: "10000 entries", message: request(func(r *rls.RateLimitRequest) {
			r.Descriptors[0].Entries = slices.Repeat([]*rlcommon.RateLimitDescriptor_Entry{{Key: "k"}}, 10_000)
		}), want: codes.ResourceExhausted},
		{name: "a value of 60 KiB", message: request(func(r *rls.RateLimitRequest) {
			r.Descriptors[0].Entries[0].Value = strings.Repeat("v", 60<<10)
		})},
		{name: "not UTF-8", message: bytes.Replace(plain, []byte("attacker"), []byte("attac\xff\xfer"), 1)},
		{name: "cut short", message: plain[:len(plain)-1], want: codes.Internal},
		{name: "0 hits", message: request(func(r *rls.RateLimitRequest) { r.HitsAddend = 0 })},
		{name: "2^32-1 hits", message: request(func(r *rls.RateLimitRequest) {
			r.HitsAddend = 1<<32 - 1
			r.Descriptors[0].Entries[0].Key = "few"
		}), over: true},
		{name: "unknown fields", message: append(slices.Clone(plain), padded(1000)[len(plain):]...)},
		{name: "a group", message: groups(1)},
		{name: "9000 nested groups", message: groups(9000)},
		{name: "11000 nested groups", message: groups(11_000), want: codes.Internal},
		{name: "a group without its end", message: protowire.AppendTag(slices.Clone(plain), 1000, protowire.StartGroupType), want: codes.Internal},
		{name: "an empty message", want: codes.Unknown}, // its domain is empty; envoyproxy/ratelimit has the same code
	}
	h := runUnderAttack(t, Options{Args: []string{"--max-message=64KiB"}}, func(s *sluice.Sluice) {
		conn := Dial(t, s.Addr("grpc"), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(64<<20)))
		defer conn.Close()
		for _, m := range messages {
			t.Run(m.name, func(t *testing.T) {
				var group sync.WaitGroup
				for range 4 {
					group.Go(func() {
						for range Pick(5, 50) {
							var reply []byte
							err := conn.Invoke(t.Context(), rls.RateLimitService_ShouldRateLimit_FullMethodName, m.message, &reply)
							if why := oddAnswer(reply, err, m.want, m.over); why != "" {
								t.Error(why)
							}
						}
					})
				}
				group.Wait()
			})
		}
	}, nil)
	t.Log("effect on other clients: ", h)
	h.checkMemory(t, 0)
}

// oddAnswer describes the difference between a reply and the expected one, or returns "".
func oddAnswer(reply []byte, err error, want codes.Code, over bool) string {
	if got := status.Code(err); got != want {
		return fmt.Sprintf("answered %.200v, want %v", err, want)
	}
	if err != nil {
		return ""
	}
	var r rls.RateLimitResponse
	if err := proto.Unmarshal(reply, &r); err != nil {
		return fmt.Sprintf("the reply does not decode: %v", err)
	}
	if len(r.GetStatuses()) != 1 || over != (r.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT) {
		return fmt.Sprintf("the reply is %v, want one status, over limit: %v", &r, over)
	}
	return ""
}
