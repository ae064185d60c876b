package server

import (
	"bytes"
	"math"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

func entry(key, value string) *rlcommon.RateLimitDescriptor_Entry {
	return &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
}

// sampleRequests are requests that use every field.
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

// checkDecode compares the decoder with protobuf's on one input.
func checkDecode(t *testing.T, d *decoder, in []byte) {
	t.Helper()
	var want rls.RateLimitRequest
	wantErr := proto.Unmarshal(in, &want)
	d.reset()
	gotErr := d.decode(in)
	if (gotErr != nil) != (wantErr != nil) {
		t.Fatalf("decode(%x) = %v, protobuf says %v", in, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	got := &d.req
	if string(got.Domain) != want.GetDomain() || got.HitsAddend != want.GetHitsAddend() || len(got.Descriptors) != len(want.GetDescriptors()) {
		t.Fatalf("decode(%x) = %q %d with %d descriptors, want %v", in, got.Domain, got.HitsAddend, len(got.Descriptors), &want)
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

// oddRequests are inputs on which decoders like to differ.
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
		message(1, []byte("d\xff")),                            // not UTF-8
		message(2, message(1, message(2, []byte{0xc0, 0x80}))), // over-long UTF-8 in a value
		message(2, message(1, message(3, []byte{0xff}))),       // unknown field may hold anything
		varint(1, 7),                                                              // domain with a varint's wire type: unknown
		message(3, []byte("x")),                                                   // hits_addend with a string's wire type
		varint(3, math.MaxUint64),                                                 // truncated to 32 bits
		overrideOf(varint(1, 5), varint(2, 1<<40|3)),                              // enum is the low 32 bits
		overrideOf(varint(2, math.MaxUint64)),                                     // negative enum
		append(message(2, message(2, varint(1, 5))), overrideOf()...),             // two descriptors
		message(2, append(message(2, varint(1, 5)), message(2, varint(2, 3))...)), // limit in two parts: merged
		message(2, append(message(3, varint(1, 5)), message(3, nil)...)),          // wrapper in two parts
		message(2, append(message(2, message(3, varint(1, 5))), message(2, message(3, nil))...)),
		append(message(1, []byte("a")), message(1, []byte("b"))...), // last one wins
		{0x0a},                  // length missing
		{0x0a, 0x05, 'a'},       // cut short
		{0x00},                  // field number 0
		{0x80, 0x00, 0x00},      // over-long tag of field number 0
		{0x8a, 0x00, 0x01, 'd'}, // over-long tag of field 1
		{0x0b, 0x0c},            // empty group 1
		{0x0b},                  // group never ends
		{0x0c},                  // group ends that never began
		{0x13, 0x0a, 0x01, 'x', 0x14},
		{0x0f},                                  // wire type 7
		{0x0d, 1, 2, 3, 4},                      // fixed32 in place of a string
		{0x09, 1, 2, 3, 4, 5, 6, 7, 8},          // fixed64
		{0x0d, 1, 2},                            // fixed32 cut short
		bytes.Repeat([]byte{0x0b}, 10_001),      // groups nested too deeply
		protowire.AppendVarint(nil, 1<<32|2),    // field number beyond the range
		protowire.AppendVarint(nil, (1<<29)<<3), // just beyond it
		append(bytes.Repeat([]byte{0x80}, 10), 1),                            // varint of eleven bytes
		append([]byte{0x18}, bytes.Repeat([]byte{0xff}, 10)...),              // varint that overflows
		append([]byte{0x0a}, protowire.AppendVarint(nil, math.MaxUint64)...), // a length of 2^64-1
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
	allocs := testing.AllocsPerRun(100, func() {
		d.reset()
		if err := d.decode(in); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("decode allocates %v times, want 0", allocs)
	}
}
