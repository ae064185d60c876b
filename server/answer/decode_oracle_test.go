package answer

import (
	"sync"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// bytesRequest is the type RateLimitRequest with bytes instead of strings, so that protobuf accepts
// any value.
var bytesRequest = sync.OnceValue(func() protoreflect.MessageDescriptor {
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		p := protodesc.ToFileDescriptorProto(f)
		switch f.FullName() {
		case "envoy.service.ratelimit.v3", "envoy.extensions.common.ratelimit.v3":
			for _, m := range p.GetMessageType() {
				stringsToBytes(m)
			}
		}
		set.File = append(set.File, p)
	}
	add(rls.File_envoy_service_ratelimit_v3_rls_proto)
	files, err := protodesc.NewFiles(set)
	if err != nil {
		panic(err)
	}
	d, err := files.FindDescriptorByName("envoy.service.ratelimit.v3.RateLimitRequest")
	if err != nil {
		panic(err)
	}
	request, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		panic("RateLimitRequest is no message")
	}
	return request
})

func stringsToBytes(m *descriptorpb.DescriptorProto) {
	for _, f := range m.GetField() {
		if f.GetType() == descriptorpb.FieldDescriptorProto_TYPE_STRING {
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		}
	}
	for _, n := range m.GetNestedType() {
		stringsToBytes(n)
	}
}

// decodeLikeProtobuf returns the request as decoded by protobuf, with arbitrary bytes in strings.
func decodeLikeProtobuf(t *testing.T, in []byte) (*rls.RateLimitRequest, error) {
	t.Helper()
	m := dynamicpb.NewMessage(bytesRequest())
	if err := proto.Unmarshal(in, m); err != nil {
		return &rls.RateLimitRequest{}, err
	}
	text := func(m protoreflect.Message, field protoreflect.Name) string {
		return string(m.Get(m.Descriptor().Fields().ByName(field)).Bytes())
	}
	// part contains no strings, so its bytes decode unchanged.
	part := func(m protoreflect.Message, field protoreflect.Name, to proto.Message) bool {
		f := m.Descriptor().Fields().ByName(field)
		if !m.Has(f) {
			return false
		}
		if err := proto.Unmarshal(marshal(t, m.Get(f).Message().Interface()), to); err != nil {
			t.Fatal(err)
		}
		return true
	}
	fields := m.Descriptor().Fields()
	out := &rls.RateLimitRequest{
		Domain:     text(m, "domain"),
		HitsAddend: uint32(m.Get(fields.ByName("hits_addend")).Uint()),
	}
	descriptors := m.Get(fields.ByName("descriptors")).List()
	for i := range descriptors.Len() {
		d := descriptors.Get(i).Message()
		to := &rlcommon.RateLimitDescriptor{IsNegativeHits: d.Get(d.Descriptor().Fields().ByName("is_negative_hits")).Bool()}
		if limit := new(rlcommon.RateLimitDescriptor_RateLimitOverride); part(d, "limit", limit) {
			to.Limit = limit
		}
		if hits := new(wrapperspb.UInt64Value); part(d, "hits_addend", hits) {
			to.HitsAddend = hits
		}
		entries := d.Get(d.Descriptor().Fields().ByName("entries")).List()
		for j := range entries.Len() {
			e := entries.Get(j).Message()
			to.Entries = append(to.Entries, entry(text(e, "key"), text(e, "value")))
		}
		out.Descriptors = append(out.Descriptors, to)
	}
	return out, nil
}
