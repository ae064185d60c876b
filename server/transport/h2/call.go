package h2

import "time"

// Handler implements methods. A [Conn] calls its methods, which must not call the Conn.
type Handler interface {
	// Call answers a call with the bytes of its reply, or an error status. The reply must not
	// change until the next Call. If later is not nil, the answer is sent with [Conn.Reply] or
	// [Conn.Fail], and the other results are ignored.
	//
	// If later is a [StreamingCall], its reply may have several messages.
	Call(c *Call) (reply []byte, s Status, later PendingCall)
	// Open starts a call of a method with [Method].ClientStreams. c has no Message. If Open returns
	// nil, the call is answered with the status.
	Open(c *Call) (StreamingCall, Status)
	// UnknownMethod returns the status of a call whose path is not that of a [Method]. The path may
	// be truncated.
	UnknownMethod(path string) Status
	// LimitExceeded returns the status of a call that exceeds a limit. c has no Message, and its
	// Method is -1 if it is not known.
	LimitExceeded(c *Call, b Limit, size int) Status
	// Reset is called when the client resets a call that has been answered: it may not have seen
	// the answer. It may be called for any stream that was opened, and more than once.
	Reset(stream uint32)
}

// PendingCall is a call that will be answered later.
type PendingCall interface {
	// Cancel is called when the call is reset or its connection closed. A later answer is ignored.
	Cancel()
}

// Call is a call with a complete request.
type Call struct {
	// Stream identifies the call for [Conn.Reply] and [Conn.Fail].
	Stream uint32
	// Method is an index of [Options].Methods.
	Method int
	// Message is the request, without its prefix of five bytes. It is valid until Call returns.
	Message []byte
	// Timeout is the time until the deadline, if HasTimeout is set. It is positive unless
	// [Method].AllowExpired is set.
	Timeout    time.Duration
	HasTimeout bool
	// Fields are the headers for which [Method].KeepHeader returned true, in their order.
	Fields []Field
}

// Field is a header.
type Field struct{ Name, Value string }

// Status is the result of a call: a gRPC status code and, unless that is OK, a message.
type Status struct {
	Code    uint32
	Message string
}

// gRPC status codes used by this package.
const (
	statusOK               = 0
	statusDeadlineExceeded = 4
	statusUnimplemented    = 12
	statusInternal         = 13
)

// Limit is a limit that a single call can exceed.
type Limit byte

// The limits that are reported to [Handler].LimitExceeded.
const (
	// LimitHeaderBytes is [Limits].MaxHeaderBytes.
	LimitHeaderBytes Limit = iota
	// LimitMessageBytes is [Limits].MaxMessageBytes or [Method].MaxMessageBytes.
	LimitMessageBytes
)

// StreamingCall is a call with any number of messages. A [Conn] calls its methods, which must
// neither block nor call the Conn.
//
// Of the received messages, a connection buffers only the requested one and the initial window of a
// stream. It buffers all unsent messages until the client extends its window: the caller must stop
// sending until Sent reports progress.
type StreamingCall interface {
	PendingCall
	// Receive receives the next message, which is valid until Receive returns. The first message
	// needs no request; the others were requested with [Conn.RequestMessage]. It is not called for
	// calls that were started with [Handler].Call.
	Receive(message []byte)
	// RequestEnded is called when no message follows: with OK if the client has ended its request,
	// otherwise with the reason why it cannot be received. It does not end the call.
	RequestEnded(s Status)
	// Sent is called when n bytes of messages, including their prefixes, were sent.
	Sent(n int)
}
