package h2

import (
	"time"
)

// Limits bound what a client can make a connection hold. All are required.
type Limits struct {
	// MaxStreams is how many calls may be open at once.
	MaxStreams int
	// MaxHeaderBytes bounds the headers of a call, as 6.5.2 counts them.
	MaxHeaderBytes int
	// MaxMessageBytes bounds a request.
	MaxMessageBytes int
	// PingInterval is the least time between a client's PINGs. Three that come sooner, without an
	// answer to a call between them, end the connection.
	PingInterval time.Duration
}

// Options are what all connections of a server have in common. The caller must not change it.
type Options struct {
	Limits Limits
	// Methods are those that the [Handler] answers, at most 250.
	Methods []Method
	// Encodings are the compressions that it knows, beside none.
	Encodings []string
}

// Method is one that a [Handler] answers.
type Method struct {
	// Path is "/service/method".
	Path string
	// ClientStreams says that a client may send any number of messages.
	ClientStreams bool
	// AllowExpired has the handler answer also calls whose timeout has passed when their requests are whole.
	AllowExpired bool
	// KeepHeader reports whether a call keeps a header that counts so many bytes in the list of headers.
	// Nil keeps none. The name is valid until Keep returns.
	KeepHeader func(name []byte, size int) bool
	// MaxMessageBytes bounds a request of this method, if it is less than [Limits].MaxMessageBytes. 0 is
	// none.
	MaxMessageBytes int
	// MaxKeptBytes is how many bytes a call may keep of what Keep wants, in the order in which they come.
	// 0 is all that a call may have.
	MaxKeptBytes int
}
