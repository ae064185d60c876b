package rlqs

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// message returns the protobuf message of an action.
func message(a *division.Action, id map[string]string) *rlqsv3.RateLimitQuotaResponse {
	m := &rlqsv3.RateLimitQuotaResponse_BucketAction{BucketId: &rlqsv3.BucketId{Bucket: id}}
	strategy := &typev3.RateLimitStrategy{}
	switch a.Kind {
	case division.Assign:
		strategy.Strategy = &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
			MaxTokens: a.MaxTokens, TokensPerFill: wrapperspb.UInt32(uint32(a.Rate)), FillInterval: durationpb.New(division.Fill),
		}}
	case division.AssignAllowAll:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_ALLOW_ALL}
	case division.AssignDenyAll:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}
	case division.Abandon:
		m.BucketAction = &rlqsv3.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_AbandonAction{}}
		return &rlqsv3.RateLimitQuotaResponse{BucketAction: []*rlqsv3.RateLimitQuotaResponse_BucketAction{m}}
	}
	m.BucketAction = &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{AssignmentTimeToLive: durationpb.New(a.TTL), RateLimitStrategy: strategy},
	}
	return &rlqsv3.RateLimitQuotaResponse{BucketAction: []*rlqsv3.RateLimitQuotaResponse_BucketAction{m}}
}

// FuzzEncode compares the encoder with protobuf's.
func FuzzEncode(f *testing.F) {
	f.Add(uint8(0), uint32(4), uint32(360_000), uint16(12), "sluice", "user", "user", "al")
	f.Add(uint8(0), uint32(math.MaxUint32), uint32(division.MaxRate), uint16(math.MaxUint16), "", "", "x", strings.Repeat("x", maxIDBytes-1))
	for kind := range uint8(4) {
		f.Add(kind, uint32(0), uint32(0), uint16(0), "k", "v", "k", "w")
	}
	f.Fuzz(func(t *testing.T, kind uint8, tokens, rate uint32, seconds uint16, k1, v1, k2, v2 string) {
		id := map[string]string{k1: v1, k2: v2}
		size := 0
		var u usage
		u.entries = make([]entry, 0, maxEntries)
		for _, k := range slices.Backward(slices.Sorted(maps.Keys(id))) {
			size += len(k) + len(id[k])
			u.addEntry(entry{[]byte(k), []byte(id[k])})
		}
		if !utf8.ValidString(k1+"|"+v1+"|"+k2+"|"+v2) || size > maxIDBytes {
			return // such an ID gets no action
		}
		a := &division.Action{
			ID: string(appendID(nil, u.entries)), Kind: division.Assign + division.Kind(kind%4), Rate: division.Rate(rate), MaxTokens: tokens, TTL: time.Duration(seconds) * time.Second,
		}
		b := appendAction(nil, a)
		var got rlqsv3.RateLimitQuotaResponse
		if err := proto.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if want := message(a, id); !proto.Equal(&got, want) {
			t.Fatalf("%v, want %v", &got, want)
		}
		if overhead := len(b) - len(a.ID); overhead > maxActionBytes {
			t.Fatalf("the action has %d bytes in addition to the ID", overhead)
		}
	})
}
