package xds_test

import (
	"testing"

	published "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestMessagesMatchPublishedProto compares our copy of the proto with go-control-plane's: each of
// its fields must have the same number and type.
func TestMessagesMatchPublishedProto(t *testing.T) {
	for _, m := range []struct{ theirs, ours proto.Message }{
		{&published.RateLimitConfig{}, &pb.RateLimitConfig{}},
		{&published.RateLimitDescriptor{}, &pb.RateLimitDescriptor{}},
		{&published.RateLimitPolicy{}, &pb.RateLimitPolicy{}},
		{&published.RateLimitReplace{}, &pb.RateLimitReplace{}},
	} {
		theirs, ours := m.theirs.ProtoReflect().Descriptor(), m.ours.ProtoReflect().Descriptor()
		for i := range theirs.Fields().Len() {
			f := theirs.Fields().Get(i)
			g := ours.Fields().ByNumber(f.Number())
			switch {
			case g == nil || g.Name() != f.Name() || g.Kind() != f.Kind() || g.Cardinality() != f.Cardinality():
				t.Errorf("%s.%s = %d is %v here", theirs.Name(), f.Name(), f.Number(), g)
			case f.Kind() == protoreflect.MessageKind && g.Message().Name() != f.Message().Name(),
				f.Kind() == protoreflect.EnumKind && g.Enum().Name() != f.Enum().Name():
				t.Errorf("%s.%s has another type here: %v", theirs.Name(), f.Name(), g)
			}
		}
	}
	units := published.RateLimitUnit(0).Descriptor().Values()
	for i := range units.Len() {
		u := units.Get(i)
		if got := pb.RateLimitUnit(u.Number()).String(); got != string(u.Name()) {
			t.Errorf("unit %d is %s here, but %s in go-control-plane", u.Number(), got, u.Name())
		}
	}
}

// TestMessagesSurvivePublishedTypes converts a message with fields that the published type lacks to
// that type and back, as a go-control-plane server does.
func TestMessagesSurvivePublishedTypes(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"tier": "gold"})
	must.OK(t, err)
	sent := &pb.RateLimitConfig{Name: "n", Domain: "d", Descriptors: []*pb.RateLimitDescriptor{{
		Key: "a", Value: "b", ShadowMode: true, DetailedMetric: true, QuotaMode: true, Metadata: metadata,
		RateLimit: &pb.RateLimitPolicy{
			Unit: pb.RateLimitUnit_WEEK, RequestsPerUnit: 1<<32 - 1, Name: "x",
			Replaces: []*pb.RateLimitReplace{{Name: "y"}},
		},
		Descriptors: []*pb.RateLimitDescriptor{{Key: "c", RateLimit: &pb.RateLimitPolicy{Unlimited: true}}},
	}}}
	there, back := &published.RateLimitConfig{}, &pb.RateLimitConfig{}
	transfer(t, sent, there)
	if got := there.GetDescriptors()[0]; got.GetKey() != "a" || got.GetRateLimit().GetReplaces()[0].GetName() != "y" || !got.GetShadowMode() {
		t.Errorf("the published type decodes it as %v", there)
	}
	transfer(t, there, back)
	if !proto.Equal(back, sent) {
		t.Errorf("after both conversions the message is %v, want %v", back, sent)
	}
}

func transfer(t *testing.T, from, to proto.Message) {
	t.Helper()
	wire, err := proto.Marshal(from)
	must.OK(t, err)
	must.OK(t, proto.Unmarshal(wire, to))
}
