package guard

import (
	"context"
	"net"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Conversation is a stream whose client sends any number of messages. Its guard would count all of them until the
// stream ends, unless its handler calls Read.
type Conversation struct {
	conn   *conn
	stream uint32
}

// messagePrefix is the number of bytes before a message that give its length.
const messagePrefix = 5

// ConversationOf returns the conversation of the context of a handler. Its method does nothing without a guard, and
// where messages are compressed, so that their length on the wire is not known.
func ConversationOf(ctx context.Context) Conversation {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Conversation{}
	}
	addr, ok := p.LocalAddr.(localAddr)
	if !ok {
		return Conversation{}
	}
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if s, ok := stream.(interface{ RecvCompress() string }); !ok || s.RecvCompress() != "" && s.RecvCompress() != "identity" {
		return Conversation{}
	}
	return Conversation{addr.conn, numberOf(stream)}
}

// Read records that the handler has read a message of the given length.
func (c Conversation) Read(length int) {
	if c.conn != nil {
		c.conn.messageRead(c.stream, messagePrefix+length)
	}
}

// numberOf returns the number of a stream, 0 if it is not known. grpc-go does not export it.
func numberOf(stream grpc.ServerTransportStream) uint32 {
	v := reflect.ValueOf(stream)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	id := v.Elem().FieldByName("id")
	if id.Kind() != reflect.Uint32 {
		return 0
	}
	return uint32(id.Uint()) //nolint:gosec // it has 32 bits
}

// localAddr is the server's address of a guarded connection. grpc-go passes it to handlers, which find the connection
// by it.
type localAddr struct {
	net.Addr
	conn *conn
}

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return localAddr{c.Conn.LocalAddr(), c} }
