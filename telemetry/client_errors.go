package telemetry

import (
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ClientErrors are the kinds of client errors. Each kind is a condition while its errors continue.
// The memory is bounded: a count and the last peer of each kind.
type ClientErrors struct {
	WithoutDomain, WithoutDescriptors, WithoutRules, Malformed, BeyondBounds, NotAllowed, GRPCOnHTTP, HTTPOnGRPC *ClientError
}

func newClientErrors(c *Conditions) ClientErrors {
	newKind := func(code Code) *ClientError {
		d := code.Define()
		e := &ClientError{definition: d, message: d.Sentence + "; more within ten seconds are only counted"}
		c.addGrowth(&growth{code: code, read: e.count, client: e})
		return e
	}
	return ClientErrors{
		WithoutDomain: newKind(RequestsWithoutDomain), WithoutDescriptors: newKind(RequestsWithoutDescriptors),
		WithoutRules: newKind(RequestsWithoutRules), Malformed: newKind(RequestsMalformed),
		BeyondBounds: newKind(RequestsBeyondBounds), NotAllowed: newKind(RequestsNotAllowed), GRPCOnHTTP: newKind(GRPCOnHTTPPort),
		HTTPOnGRPC: newKind(HTTPOnGRPCPort),
	}
}

// ClientError is a kind of client error. Its methods may be called concurrently.
type ClientError struct {
	definition *Definition
	message    string

	mu     sync.Mutex
	n      uint64
	peer   fmt.Stringer // peer of the last error, nil if unknown
	fields []zap.Field  // fields of the last error
}

// Report counts and logs an error, and stores the client's address unless it is nil. The logger
// must have been returned by [Rare]. A field named remedy replaces the remedy of the code.
func (e *ClientError) Report(rare *zap.Logger, peer fmt.Stringer, fields ...zap.Field) {
	e.mu.Lock()
	e.n++
	if peer != nil {
		e.peer = peer
	}
	e.fields = fields
	e.mu.Unlock()
	d := e.definition
	if line := rare.Check(d.Level, e.message); line != nil {
		remedy, fields := splitRemedy(d, fields)
		line.Write(append(fields, zap.String("peer", peerText(peer)), zap.String("remedy", remedy), Mark(d.Code))...)
	}
}

func (e *ClientError) count() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func (e *ClientError) describe(fields map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := zapcore.NewMapObjectEncoder()
	for _, f := range e.fields {
		if f.Key != "remedy" {
			f.AddTo(last)
			fields[f.Key] = bounded(last.Fields[f.Key])
		}
	}
	fields["peer"] = peerText(e.peer)
}

// maxPeerBytes bounds a peer's address in texts. A client can choose the name of its unix socket.
const maxPeerBytes = 64

// peerText returns an address in printable ASCII, truncated to maxPeerBytes.
func peerText(peer fmt.Stringer) string {
	if peer == nil || peer.String() == "" {
		return "unknown"
	}
	text := peer.String()
	if len(text) > maxPeerBytes {
		text = text[:maxPeerBytes-3] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// levelName returns the name of a level in the log.
func levelName(l zapcore.Level) string {
	if l == zapcore.WarnLevel {
		return "warning" // as envoyproxy/ratelimit does
	}
	return l.String()
}
