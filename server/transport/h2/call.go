package h2

import "time"

// Handler answers calls. A [Conn] calls its methods; they must not call those of the Conn.
type Handler interface {
	// Call answers a call with the bytes of its reply, or with an error's status. The reply must
	// stay as it is until Call is called again. If later is not nil, the answer comes by
	// [Conn.Reply] or [Conn.Fail], and the other results do not count.
	//
	// If later is a [Conversation], its reply may have several messages.
	Call(c *Call) (reply []byte, s Status, later PendingCall)
	// Open begins a call of a method that has [Method].Streams. It has no Message. If the
	// conversation is nil, the call is answered with the status.
	Open(c *Call) (StreamingCall, Status)
	// UnknownMethod returns how a call of a path that no [Method] has is answered. The path may be cut.
	UnknownMethod(path string) Status
	// LimitExceeded returns how a call is answered that is beyond a bound. It has no Message, and a Method of
	// -1 if that is not known.
	LimitExceeded(c *Call, b Limit, size int) Status
	// Reset is called when a call ends by a reset that [Handler.Call] has answered at once, or [Conn.Reply] later: its
	// client may not have seen the answer. It may be called for any stream that has begun, and again.
	Reset(stream uint32)
}

// PendingCall is a call that is answered later.
type PendingCall interface {
	// Cancel is called when nobody waits for the answer any more. An answer that comes all the
	// same is thrown away.
	Cancel()
}

// Call is a call whose request is whole.
type Call struct {
	// Stream is what [Conn.Reply] and [Conn.Fail] name the call by.
	Stream uint32
	// Method is the index of the call's method in [Options].Methods.
	Method int
	// Message is the request, without the five bytes before it. It is valid until Call returns.
	Message []byte
	// Encoding is what Message is compressed by, one of [Options].Encodings, or "". Of a
	// [Conversation] it is what its messages may be compressed by.
	Encoding string
	// Timeout is the rest of the call's timeout, if HasTimeout. With [Method].Late it may be 0 or less.
	Timeout    time.Duration
	HasTimeout bool
	// DecompressedBytes is for [Handler].Call to set: how many bytes Message was decompressed to. They count as if
	// they had been sent, so a call of Feed takes in fewer others.
	DecompressedBytes uint32
	// Fields are the headers that [Method].Keep has kept, in their order.
	Fields []Field
}

// Field is a header.
type Field struct{ Name, Value string }

// Status is how a call ends: a status code of gRPC and, unless that is OK, a text for people.
type Status struct {
	Code    uint32
	Message string
}

// Status codes of gRPC that this package answers with.
const (
	statusOK               = 0
	statusDeadlineExceeded = 4
	statusUnimplemented    = 12
	statusInternal         = 13
)

// Limit is one of [Limits] that a call alone can exceed.
type Limit byte

// The bounds that [Handler.Exceeded] is told of.
const (
	// LimitHeaderBytes is [Limits].MaxHeaderBytes.
	LimitHeaderBytes Limit = iota
	// LimitMessageBytes is [Limits].MaxMessageBytes, or that of the [Method].
	LimitMessageBytes
)

// StreamingCall is a call whose messages come and go one by one. A [Conn] calls its methods, which must
// neither wait nor call those of the Conn.
//
// Of what a client sends, a connection holds no more than the message that was asked for and the
// first window of what comes after it. What it is given to send, it holds until the client has a
// window for it: Sent says how much has left, and the caller has to stop in time.
type StreamingCall interface {
	PendingCall
	// Receive brings the next message, which is valid until Receive returns. The first comes by
	// itself, and each of the others after it was asked for by [Conn.Want]. Of a call that came
	// by [Handler.Call], none comes.
	Receive(message []byte, compressed bool)
	// RequestEnded says that no message follows: the client has ended its request, which is OK, or what it
	// sent cannot be taken. The call is not answered by that.
	RequestEnded(s Status)
	// Sent says that so many bytes of what [Conn.Send] was given have left, with their prefixes.
	Sent(n int)
}
