package h2

import "fmt"

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
