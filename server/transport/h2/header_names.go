package h2

import (
	"bytes"
	"cmp"
	"math"
)

// headerName is a header that a request's meaning depends on. It is worked out once for each entry
// of a header table, so that an indexed field costs a look-up.
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
	// nameBinary is that of a header whose value is Base64: gRPC over HTTP2, "Custom-Metadata".
	nameBinary
	// nameConnection is that of a header of HTTP/1 connections, which must not be here (8.2.2).
	nameConnection
	// namePseudo is a pseudo-header that no request has (8.3).
	namePseudo
	// nameInvalid has bytes that no name may have (8.2.1).
	nameInvalid
)

// headerKind is what a header is and, by its value, what it says.
type headerKind struct {
	headerName headerName
	meaning    byte // depends on the name
}

// Meanings of values. Zero is a value that needs no attention, or that has to be read.
const (
	valueInvalid byte = 255 // bytes that no value may have (8.2.1)

	methodOther byte = 1

	pathRelative byte = 254 // does not begin with a slash
	// Another path is the number of a known one, from 1 on, or 0.

	contentNotGRPC  byte = 1
	contentNotProto byte = 2 // gRPC of another codec

	teOther byte = 1 // other than trailers

	binaryInvalid byte = 1 // not Base64
)

// knownHeaders are the headers that a server knows. It is read only.
type knownHeaders struct {
	paths        map[string]byte
	keepHeader   [256]func(name []byte, size int) bool // by the meaning of a path
	maxKeptBytes [256]int                              // likewise; see Method.MostKept
	static       [len(staticTable)]field
}

func newKnownHeaders(methods []Method) *knownHeaders {
	k := &knownHeaders{paths: make(map[string]byte, len(methods))}
	for i, m := range methods {
		k.paths[m.Path] = byte(i + 1)
		k.keepHeader[i+1], k.maxKeptBytes[i+1] = m.KeepHeader, cmp.Or(m.MaxKeptBytes, math.MaxInt)
	}
	for i, e := range staticTable {
		f := field{name: []byte(e.name), value: []byte(e.value)}
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

// nameOf returns which header a name is.
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

// meaning returns what the value of a header says.
func (k *knownHeaders) meaning(name headerName, value []byte) byte {
	for _, b := range value {
		if b == 0 || b == '\r' || b == '\n' {
			return valueInvalid
		}
	}
	switch name { //nolint:exhaustive // the others say nothing by their value alone
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

// isBase64 reports whether a value is Base64, with padding or without (RFC 4648, section 4). As with
// grpc-go, a list of values is not.
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

// contentType reads that of a request: gRPC over HTTP2, "Requests".
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
	case len(codec) == 0, string(codec) == "+proto", string(codec) == "+": // the last as grpc-go
		return 0
	case codec[0] == '+':
		return contentNotProto
	}
	return contentNotGRPC
}

// field is a header field of a block. Its bytes are valid until the next field is decoded.
type field struct {
	name, value []byte
	headerKind
	// tooLong says that name or value is longer than the decoder keeps. Both are then empty.
	tooLong bool
	// size is what the field counts in the header list (6.5.2).
	size int
}
