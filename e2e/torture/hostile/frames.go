package hostile

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	reflectionInfo  = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// appendFrame appends a frame, valid or not.
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

// appendCode appends a frame whose payload is one number: RST_STREAM or WINDOW_UPDATE.
func appendCode(b []byte, kind http2.FrameType, stream, number uint32) []byte {
	return appendFrame(b, kind, 0, stream, binary.BigEndian.AppendUint32(nil, number))
}

// block returns the header block of a call with additional fields. It does not use the dynamic
// table, so that it can be repeated.
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
		f.Sensitive = true                      // not indexed
		if err := e.WriteField(f); err != nil { // writes to memory
			return nil
		}
	}
	return b.Bytes()
}

// Request returns a gRPC message with a RateLimitRequest of one descriptor. Domain, key and value
// must be shorter than 60 bytes.
func Request(domain, key, value string) []byte {
	entry := append(field(1, key), field(2, value)...)
	descriptor := field(1, string(entry))
	message := append(field(1, domain), field(2, string(descriptor))...)
	return Framed(message)
}

// Framed returns a message with gRPC's length prefix.
func Framed(message []byte) []byte {
	return append(prefix(uint32(len(message))), message...)
}

// prefix returns gRPC's length prefix for a message of the given size.
func prefix(bytes uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, bytes) }

// field returns a bytes field in protobuf encoding, shorter than 128 bytes.
func field(number byte, value string) []byte {
	return append([]byte{number<<3 | 2, byte(len(value))}, value...)
}
