package h2

import (
	"bytes"
	"cmp"
	"math"

	"golang.org/x/net/http2/hpack"
)

// headerName identifies a header that affects a request. It is determined once per entry of a
// header table, so that an indexed field costs a look-up.
type headerName byte

const (
	nameOther headerName = iota
	nameMethod
	nameScheme
	namePath
	nameAuthority
	nameHost
	nameContentType
	nameContentLength
	nameTE
	nameTimeout
	nameEncoding
	// nameBinary is a header whose value is base64: gRPC over HTTP2, "Custom-Metadata".
	nameBinary
	// nameConnection is a connection-specific header of HTTP/1, which is invalid (8.2.2).
	nameConnection
	// namePseudo is a pseudo-header that is invalid in requests (8.3).
	namePseudo
	// nameInvalid is a name with invalid bytes (8.2.1).
	nameInvalid
)

// headerKind is the name of a header and the meaning of its value.
type headerKind struct {
	headerName headerName
	meaning    byte // depends on the name
}

// Meanings of values. Zero is a value that is valid, or that must be read.
const (
	valueInvalid byte = 255 // has invalid bytes (8.2.1)

	methodOther byte = 1

	pathRelative byte = 254 // does not begin with a slash
	// Other paths: the number of a known path, from 1, or 0.

	contentNotGRPC  byte = 1
	contentNotProto byte = 2 // gRPC with another codec

	teOther byte = 1 // other than trailers

	binaryInvalid byte = 1 // not base64
)

// knownHeaders is the read-only information about headers and methods.
type knownHeaders struct {
	paths        map[string]byte
	keepHeader   [256]func(name []byte, size int) bool // by path number
	maxKeptBytes [256]int                              // by path number; see Method.MaxKeptBytes
	static       [firstDynamic]field
}

// firstDynamic is the index of the first entry of the dynamic table. The indexes before it, from 1,
// are those of the static table: RFC 7541, section 2.3.3.
const firstDynamic = 62

func newKnownHeaders(methods []Method) *knownHeaders {
	k := &knownHeaders{paths: make(map[string]byte, len(methods))}
	for i, m := range methods {
		k.paths[m.Path] = byte(i + 1)
		k.keepHeader[i+1] = m.KeepHeader
		k.maxKeptBytes[i+1] = cmp.Or(m.MaxKeptBytes, math.MaxInt)
	}
	table := hpack.NewDecoder(0, nil)
	for i := 1; i < firstDynamic; i++ {
		entry, _ := table.DecodeFull([]byte{0x80 | byte(i)}) // an indexed field, which is valid
		f := field{name: []byte(entry[0].Name), value: []byte(entry[0].Value)}
		f.headerName = nameOf(f.name)
		f.meaning = k.meaning(f.headerName, f.value)
		k.static[i] = f
	}
	return k
}

var headerNames = map[string]headerName{
	":method": nameMethod, ":scheme": nameScheme, ":path": namePath, ":authority": nameAuthority, "host": nameHost,
	"content-type": nameContentType, "content-length": nameContentLength, "te": nameTE,
	"grpc-timeout": nameTimeout, "grpc-encoding": nameEncoding,
	"connection": nameConnection, "proxy-connection": nameConnection, "keep-alive": nameConnection,
	"transfer-encoding": nameConnection, "upgrade": nameConnection,
}

func nameOf(name []byte) headerName {
	if known := headerNames[string(name)]; known != nameOther {
		return known
	}
	for i, b := range name {
		switch {
		case b == ':' && i == 0:
			return namePseudo
		case b <= ' ', 'A' <= b && b <= 'Z', b >= 0x7f, b == ':':
			return nameInvalid
		}
	}
	switch {
	case len(name) == 0:
		return nameInvalid
	case bytes.HasSuffix(name, []byte("-bin")):
		return nameBinary
	}
	return nameOther
}

// meaning returns the meaning of a header's value.
func (k *knownHeaders) meaning(name headerName, value []byte) byte {
	for _, b := range value {
		if b == 0 || b == '\r' || b == '\n' {
			return valueInvalid
		}
	}
	switch name { //nolint:exhaustive // the others need no check
	case nameMethod:
		if string(value) != "POST" {
			return methodOther
		}
	case namePath:
		if len(value) == 0 || value[0] != '/' {
			return pathRelative
		}
		return k.paths[string(value)]
	case nameContentType:
		return contentType(value)
	case nameTE:
		if string(value) != "trailers" {
			return teOther
		}
	case nameBinary:
		if !isBase64(value) {
			return binaryInvalid
		}
	}
	return 0
}

// isBase64 reports whether a value is base64, with or without padding (RFC 4648, section 4). As in
// grpc-go, a list of values is invalid.
func isBase64(value []byte) bool {
	if len(value)%4 == 0 {
		for range 2 {
			value = bytes.TrimSuffix(value, []byte("="))
		}
	}
	for _, b := range value {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '+', b == '/':
		default:
			return false
		}
	}
	return len(value)%4 != 1
}

// contentType returns the meaning of a content-type: gRPC over HTTP2, "Requests".
func contentType(value []byte) byte {
	const grpc = "application/grpc"
	if len(value) < len(grpc) || string(value[:len(grpc)]) != grpc {
		return contentNotGRPC
	}
	codec := value[len(grpc):]
	for i, b := range codec {
		if b == ';' {
			codec = codec[:i]
			break
		}
	}
	switch {
	case len(codec) == 0, string(codec) == "+proto", string(codec) == "+": // the last as in grpc-go
		return 0
	case codec[0] == '+':
		return contentNotProto
	}
	return contentNotGRPC
}

// field is a decoded header field. Its bytes are valid until the next field is decoded.
type field struct {
	name, value []byte
	headerKind
	// tooLong is true if the name or value was skipped. Both are then empty.
	tooLong bool
	// size is the size in the header list (6.5.2).
	size int
}
