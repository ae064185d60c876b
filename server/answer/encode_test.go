package answer

import (
	"math"
	"math/rand/v2"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// pick returns one of the values at which the length of an encoding changes.
func pick(r *rand.Rand) uint32 {
	edges := []uint32{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<21 - 1, 1 << 21, 1<<28 - 1, 1 << 28, math.MaxUint32}
	return edges[r.IntN(len(edges))]
}

// checkEncode encodes random replies from the seed and compares them with protobuf's encoding.
func checkEncode(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	names := []string{"", "n", "ü", string(make([]byte, 127)), string(make([]byte, 300))}
	got := []byte{1 << 3, codeOK}
	want := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range r.IntN(5) {
		st := descriptorStatus{code: codeOK + uint8(r.IntN(2)), remaining: pick(r)}
		w := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_Code(st.code), LimitRemaining: st.remaining}
		if r.IntN(3) > 0 {
			terms := &descriptors.Terms{RequestsPerUnit: pick(r), Unit: rules.Unit(1 + r.IntN(7)), UnitMultiplier: max(1, pick(r))}
			st.limit = &descriptors.Limit{Terms: terms, Name: names[r.IntN(len(names))]}
			st.resetSeconds = uint64(max(1, pick(r)))
			w.CurrentLimit = &rls.RateLimitResponse_RateLimit{
				RequestsPerUnit: st.limit.RequestsPerUnit, Unit: rls.RateLimitResponse_RateLimit_Unit(st.limit.Unit), Name: st.limit.Name,
			}
			if st.limit.UnitMultiplier > 1 {
				w.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(st.limit.UnitMultiplier)
			}
			w.DurationUntilReset = &durationpb.Duration{Seconds: int64(st.resetSeconds)}
		}
		got = appendStatus(got, &st)
		want.Statuses = append(want.Statuses, w)
	}
	for field, list := range []*[]*corev3.HeaderValue{fieldResponseHeaders: &want.ResponseHeadersToAdd, fieldRequestHeaders: &want.RequestHeadersToAdd} {
		for range r.IntN(3) {
			if list == nil {
				break
			}
			value := uint64(pick(r)) << r.IntN(33)
			got = appendHeader(got, byte(field), "RateLimit-Limit", value)
			*list = append(*list, &corev3.HeaderValue{Key: "RateLimit-Limit", Value: decimal(value)})
		}
	}
	if wantBytes := marshal(t, want); string(got) != string(wantBytes) {
		var back rls.RateLimitResponse
		err := proto.Unmarshal(got, &back)
		t.Fatalf("seed %d: encoded %x, want %x (%v)\n%s", seed, got, wantBytes, err, cmp.Diff(&back, want, protocmp.Transform()))
	}
}

func decimal(v uint64) string {
	if v < 10 {
		return string(rune('0' + v))
	}
	return decimal(v/10) + decimal(v%10)
}

func TestEncodeAgreesWithProtobuf(t *testing.T) {
	for seed := range uint64(20_000) {
		checkEncode(t, seed)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkEncode(t, seed) })
}

func TestMergedMetadata(t *testing.T) {
	type m = map[string]any
	for _, test := range []struct {
		name string
		in   []m
		want m
	}{
		{"one", []m{{"a": "1"}}, m{"a": "1"}},
		{"first leaf wins", []m{{"a": "1"}, {"a": "2", "b": "3"}}, m{"a": "1", "b": "3"}},
		{"objects merge", []m{{"o": m{"a": "1"}}, {"o": m{"a": "2", "b": m{"c": true}}}, {"o": m{"b": m{"d": nil}}}}, m{"o": m{"a": "1", "b": m{"c": true, "d": nil}}}},
		{"leaf beats later object", []m{{"o": "leaf"}, {"o": m{"a": "2"}}}, m{"o": "leaf"}},
		{"object ignores later leaf", []m{{"o": m{"a": "1"}}, {"o": "leaf"}, {"o": m{"b": "2"}}}, m{"o": m{"a": "1", "b": "2"}}},
		{"null is a value", []m{{"o": nil}, {"o": m{"a": "2"}}}, m{"o": nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			merged := test.in[0]
			for _, in := range test.in[1:] {
				merged, _ = mergeTrees(merged, in)
			}
			for _, in := range test.in {
				if _, adds := mergeTrees(merged, in); adds {
					t.Errorf("%v adds something to the union", in)
				}
			}
			want, err := structpb.NewValue(test.want)
			if err != nil {
				t.Fatal(err)
			}
			var got structpb.Value
			if err := proto.Unmarshal(appendTree(nil, merged), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
				t.Errorf("merged metadata differs (-want +got):\n%s", diff)
			}
		})
	}
}
