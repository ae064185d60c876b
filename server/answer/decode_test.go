package answer

import (
	"bytes"
	"errors"
	"math"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func entry(key, value string) *rlcommon.RateLimitDescriptor_Entry {
	return &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
}

// sampleRequests returns requests that use every field.
func sampleRequests() []*rls.RateLimitRequest {
	return []*rls.RateLimitRequest{
		{},
		{Domain: "d", HitsAddend: math.MaxUint32},
		{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "alice"), entry("path", "/api/v1/orders"), entry("method", "GET")}},
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("remote_address", "203.0.113.7"), entry("", "")}},
		}},
		{Domain: "ü", HitsAddend: 3, Descriptors: []*rlcommon.RateLimitDescriptor{
			{
				Entries:        []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
				Limit:          &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(10)},
				HitsAddend:     wrapperspb.UInt64(math.MaxUint64),
				IsNegativeHits: true,
			},
			{HitsAddend: wrapperspb.UInt64(0), Limit: &rlcommon.RateLimitDescriptor_RateLimitOverride{Unit: -1}},
			{},
		}},
	}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// unbounded lets the decoder accept everything that protobuf accepts.
var unbounded = Bounds{MessageBytes: math.MaxInt, Descriptors: math.MaxInt, Entries: math.MaxInt, KeyBytes: math.MaxInt}

// checkDecode compares the decoder with protobuf on one input.
func checkDecode(t *testing.T, d *decoder, in []byte) {
	t.Helper()
	want, wantErr := decodeLikeProtobuf(t, in)
	d.reset()
	gotErr := d.decode(in, &unbounded)
	if (gotErr != nil) != (wantErr != nil) {
		t.Fatalf("decode(%x) = %v, protobuf returns %v", in, gotErr, wantErr)
	}
	defer checkBounds(t, d, in, want, wantErr)
	if gotErr != nil {
		return
	}
	got := &d.req
	if string(got.Domain) != want.GetDomain() || got.HitsAddend != want.GetHitsAddend() || len(got.Descriptors) != len(want.GetDescriptors()) {
		t.Fatalf("decode(%x) = %q %d with %d descriptors, want %v", in, got.Domain, got.HitsAddend, len(got.Descriptors), want)
	}
	for i, w := range want.GetDescriptors() {
		g := got.Descriptors[i]
		if g.HasHits != (w.GetHitsAddend() != nil) || g.Hits != w.GetHitsAddend().GetValue() || g.Refund != w.GetIsNegativeHits() {
			t.Fatalf("decode(%x): descriptor %d has hits %v %d refund %v, want %v", in, i, g.HasHits, g.Hits, g.Refund, w)
		}
		o := descriptors.Override{
			RequestsPerUnit: w.GetLimit().GetRequestsPerUnit(),
			Unit:            int32(w.GetLimit().GetUnit()),
			UnitMultiplier:  w.GetLimit().GetUnitMultiplier().GetValue(),
		}
		if g.HasOverride != (w.GetLimit() != nil) || g.Override != o {
			t.Fatalf("decode(%x): descriptor %d has override %v %v, want %v", in, i, g.HasOverride, g.Override, w)
		}
		if len(g.Entries) != len(w.GetEntries()) {
			t.Fatalf("decode(%x): descriptor %d has %d entries, want %v", in, i, len(g.Entries), w)
		}
		for j, e := range w.GetEntries() {
			if string(g.Entries[j].Key) != e.GetKey() || string(g.Entries[j].Value) != e.GetValue() {
				t.Fatalf("decode(%x): entry %d/%d = %q %q, want %v", in, i, j, g.Entries[j].Key, g.Entries[j].Value, e)
			}
		}
	}
}

// checkBounds checks that an input within bounds decodes unchanged, and that an input beyond a
// bound is rejected.
func checkBounds(t *testing.T, d *decoder, in []byte, m *rls.RateLimitRequest, malformed error) {
	t.Helper()
	narrow := Bounds{MessageBytes: math.MaxInt, Descriptors: 2, Entries: 3, KeyBytes: 4}
	beyond := len(m.GetDescriptors()) > narrow.Descriptors
	for _, r := range m.GetDescriptors() {
		beyond = beyond || len(r.GetEntries()) > narrow.Entries
		for _, e := range r.GetEntries() {
			beyond = beyond || len(e.GetKey()) > narrow.KeyBytes
		}
	}
	d.reset()
	err := d.decode(in, &narrow)
	bounded, isBound := errors.AsType[*boundError](err)
	switch {
	case malformed != nil && err == nil, malformed == nil && isBound != beyond, malformed == nil && !beyond && err != nil:
		t.Fatalf("decode(%x) within narrow bounds = %v, protobuf returns %v, %v", in, err, m, malformed)
	case isBound && bounded.found <= bounded.max:
		t.Fatalf("decode(%x) = %v", in, bounded)
	case len(d.req.Descriptors) > narrow.Descriptors, len(d.entries) > narrow.Descriptors*narrow.Entries:
		t.Fatalf("decode(%x) keeps %d descriptors and %d entries of %v", in, len(d.req.Descriptors), len(d.entries), narrow)
	}
}

// oddRequests returns inputs on which decoders tend to differ.
func oddRequests(tb testing.TB) [][]byte {
	tb.Helper()
	message := func(num protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
	}
	varint := func(num protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
	}
	overrideOf := func(parts ...[]byte) []byte { return message(2, message(2, bytes.Join(parts, nil))) }
	odd := [][]byte{
		// Not UTF-8.
		message(1, []byte("d\xff")),
		// Over-long UTF-8 in a value.
		message(2, message(1, message(2, []byte{0xc0, 0x80}))),
		// Unknown field with arbitrary bytes.
		message(2, message(1, message(3, []byte{0xff}))),
		// Domain with a varint's wire type: unknown.
		varint(1, 7),
		// Hits_addend with a string's wire type.
		message(3, []byte("x")),
		// Truncated to 32 bits.
		varint(3, math.MaxUint64),
		// Enum is the low 32 bits.
		overrideOf(varint(1, 5), varint(2, 1<<40|3)),
		// Negative enum.
		overrideOf(varint(2, math.MaxUint64)),
		// Two descriptors.
		append(message(2, message(2, varint(1, 5))), overrideOf()...),
		// Limit in two parts: merged.
		message(2, append(message(2, varint(1, 5)), message(2, varint(2, 3))...)),
		// Wrapper in two parts.
		message(2, append(message(3, varint(1, 5)), message(3, nil)...)),
		message(2, append(message(2, message(3, varint(1, 5))), message(2, message(3, nil))...)),
		// Last one wins.
		append(message(1, []byte("a")), message(1, []byte("b"))...),
		// Length missing.
		{0x0a},
		// Cut short.
		{0x0a, 0x05, 'a'},
		// Field number 0.
		{0x00},
		// Over-long tag of field number 0.
		{0x80, 0x00, 0x00},
		// Over-long tag of field 1.
		{0x8a, 0x00, 0x01, 'd'},
		// Empty group 1.
		{0x0b, 0x0c},
		// Group never ends.
		{0x0b},
		// Group ends that never began.
		{0x0c},
		{0x13, 0x0a, 0x01, 'x', 0x14},
		// Wire type 7.
		{0x0f},
		// Fixed32 in place of a string.
		{0x0d, 1, 2, 3, 4},
		// Fixed64.
		{0x09, 1, 2, 3, 4, 5, 6, 7, 8},
		// Fixed32 cut short.
		{0x0d, 1, 2},
		// Groups nested too deeply.
		bytes.Repeat([]byte{0x0b}, 10_001),
		// Field number beyond the range.
		protowire.AppendVarint(nil, 1<<32|2),
		// Just beyond it.
		protowire.AppendVarint(nil, (1<<29)<<3),
		// Varint of eleven bytes.
		append(bytes.Repeat([]byte{0x80}, 10), 1),
		// Varint that overflows.
		append([]byte{0x18}, bytes.Repeat([]byte{0xff}, 10)...),
		// A length of 2^64-1.
		append([]byte{0x0a}, protowire.AppendVarint(nil, math.MaxUint64)...),
	}
	for _, m := range sampleRequests() {
		b := marshal(tb, m)
		for i := range b {
			odd = append(odd, b[:i])
		}
		odd = append(odd, b, append(bytes.Clone(b), b...))
	}
	return odd
}

func TestDecodeAgreesWithProtobuf(t *testing.T) {
	var d decoder
	for _, in := range oddRequests(t) {
		checkDecode(t, &d, in)
	}
}

func FuzzDecode(f *testing.F) {
	for _, in := range oddRequests(f) {
		if len(in) < 200 {
			f.Add(in)
		}
	}
	var d decoder
	f.Fuzz(func(t *testing.T, in []byte) { checkDecode(t, &d, in) })
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	in := marshal(t, sampleRequests()[2])
	var d decoder
	allocs := must.AllocsPerRun(100, func() {
		d.reset()
		if err := d.decode(in, &unbounded); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("decode allocates %v times, want 0", allocs)
	}
}
