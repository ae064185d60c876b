package h2

import (
	"fmt"
	"time"
)

// Limits bound the resources that a client can use on a connection. All are required.
type Limits struct {
	// MaxStreams is the number of concurrent streams.
	MaxStreams int
	// MaxHeaderBytes limits the headers of a call, as defined in 6.5.2.
	MaxHeaderBytes int
	// MaxMessageBytes limits a request message.
	MaxMessageBytes int
	// PingInterval is the shortest allowed time between a client's PINGs. Three PINGs that come
	// sooner, without an answer to a call in between, close the connection.
	PingInterval time.Duration
}

// Options configure a server. The caller must not change them after NewServer.
type Options struct {
	Limits Limits
	// Methods are the methods that the [Handler] implements, at most 250.
	Methods []Method
}

// Method describes a method of a [Handler].
type Method struct {
	// Path is "/service/method".
	Path string
	// ClientStreams is true if a client may send any number of messages.
	ClientStreams bool
	// AllowExpired is true if the handler also gets calls whose timeout has expired when the
	// request is complete.
	AllowExpired bool
	// KeepHeader reports whether a call keeps a header of the given size in the header list. Nil
	// keeps none. The name is valid until KeepHeader returns.
	KeepHeader func(name []byte, size int) bool
	// MaxMessageBytes limits requests of this method, if it is less than [Limits].MaxMessageBytes.
	// 0 is no limit.
	MaxMessageBytes int
	// MaxKeptBytes limits the headers that a call keeps; later ones are dropped. 0 is no limit
	// other than that of the call's headers.
	MaxKeptBytes int
}

// Code is an error code of RST_STREAM and GOAWAY frames (7).
type Code uint32

// The error codes that a server uses.
const (
	CodeNo                Code = 0x0
	CodeProtocol          Code = 0x1
	CodeInternal          Code = 0x2
	CodeFlowControl       Code = 0x3
	CodeSettingsTimeout   Code = 0x4
	CodeStreamClosed      Code = 0x5
	CodeFrameSize         Code = 0x6
	CodeRefusedStream     Code = 0x7
	CodeCancel            Code = 0x8
	CodeCompression       Code = 0x9
	CodeEnhanceYourCalm   Code = 0xb
	CodeInadequateSecrecy Code = 0xc
)

// ConnError closes a connection (5.4.1). It describes the violated rule, and contains nothing that
// the client sent.
type ConnError struct {
	Code   Code
	Reason string
}

// Error returns the reason and the code.
func (e *ConnError) Error() string {
	return fmt.Sprintf("http2: %s (error code %d)", e.Reason, e.Code)
}
