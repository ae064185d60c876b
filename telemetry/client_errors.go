package telemetry

import (
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ClientErrors are what clients do wrong. Each is a condition while it goes on. Whatever clients do, the memory is that of a count
// and of one peer for each.
type ClientErrors struct {
	WithoutDomain, WithoutDescriptors, Malformed, BeyondBounds, NotAllowed, GRPCOnHTTP *ClientError
}

func newClientErrors(c *Conditions) ClientErrors {
	of := func(code Code) *ClientError {
		d := code.Define()
		e := &ClientError{definition: d, message: d.Sentence + "; more within ten seconds are only counted"}
		c.addGrowth(&growth{code: code, read: e.count, client: e})
		return e
	}
	return ClientErrors{
		WithoutDomain: of(RequestsWithoutDomain), WithoutDescriptors: of(RequestsWithoutDescriptors), Malformed: of(RequestsMalformed),
		BeyondBounds: of(RequestsBeyondBounds), NotAllowed: of(RequestsNotAllowed), GRPCOnHTTP: of(GRPCOnHTTPPort),
	}
}

// ClientError is one kind of them. Its methods may be called concurrently.
type ClientError struct {
	definition *Definition
	message    string

	mu   sync.Mutex
	n    uint64
	peer fmt.Stringer // of the last one; nil if it is not known
}

// Report counts an error of a client, remembers the client's address unless it is nil, and logs the error. The logger must be one of
// [Rare]. A field named remedy replaces the remedy of the code.
func (e *ClientError) Report(rare *zap.Logger, peer fmt.Stringer, fields ...zap.Field) {
	e.mu.Lock()
	e.n++
	if peer != nil {
		e.peer = peer
	}
	e.mu.Unlock()
	d := e.definition
	if line := rare.Check(d.Level, e.message); line != nil {
		remedy, fields := takeRemedy(d, fields)
		line.Write(append(fields, zap.String("peer", peerText(peer)), zap.String("remedy", remedy), Mark(d.Code))...)
	}
}

func (e *ClientError) count() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func (e *ClientError) lastPeer() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return peerText(e.peer)
}

// longestPeer is the most that is shown of a peer's address. A client may choose the name of its unix socket.
const longestPeer = 64

// peerText returns the text of an address in printable ASCII, cut to longestPeer bytes.
func peerText(peer fmt.Stringer) string {
	if peer == nil || peer.String() == "" {
		return "unknown"
	}
	text := peer.String()
	if len(text) > longestPeer {
		text = text[:longestPeer-3] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// levelName returns a level as the log has it.
func levelName(l zapcore.Level) string {
	if l == zapcore.WarnLevel {
		return "warning" // as envoyproxy/ratelimit does
	}
	return l.String()
}
