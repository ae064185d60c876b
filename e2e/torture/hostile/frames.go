package hostile

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Paths of methods.
const (
	shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	reflectionInfo  = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// appendFrame adds a frame, however odd.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

func appendSettings(b []byte, settings ...http2.Setting) []byte {
	var payload []byte
	for _, s := range settings {
		payload = binary.BigEndian.AppendUint16(payload, uint16(s.ID))
		payload = binary.BigEndian.AppendUint32(payload, s.Val)
	}
	return appendFrame(b, http2.FrameSettings, 0, 0, payload)
}

// appendCode adds a frame whose payload is one number: RST_STREAM, WINDOW_UPDATE.
func appendCode(b []byte, kind http2.FrameType, stream, number uint32) []byte {
	return appendFrame(b, kind, 0, stream, binary.BigEndian.AppendUint32(nil, number))
}

// block is the header block of a call with more fields. It does not use the dynamic
// table, so the same bytes serve any number of calls.
func block(path string, more ...hpack.HeaderField) []byte {
	return encode(append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "sluice"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...))
}

func encode(fields []hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		f.Sensitive = true                      // never indexed
		if err := e.WriteField(f); err != nil { // into memory
			return nil
		}
	}
	return b.Bytes()
}

// Request is a RateLimitRequest of one descriptor, within the frame of gRPC.
// Domain, key and value are shorter than 60 bytes.
func Request(domain, key, value string) []byte {
	entry := append(field(1, key), field(2, value)...)
	descriptor := field(1, string(entry))
	message := append(field(1, domain), field(2, string(descriptor))...)
	return Framed(message)
}

// Framed puts a message into the frame of gRPC.
func Framed(message []byte) []byte {
	return append(prefix(uint32(len(message))), message...)
}

// prefix announces a message of this size.
func prefix(bytes uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, bytes) }

// field is a field of bytes in protobuf's encoding, of less than 128 bytes.
func field(number byte, value string) []byte {
	return append([]byte{number<<3 | 2, byte(len(value))}, value...)
}
