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

// ConversationOf returns the conversation of the context of a handler. Without a guard, its method does nothing.
func ConversationOf(ctx context.Context) Conversation {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Conversation{}
	}
	addr, ok := p.LocalAddr.(localAddr)
	if !ok {
		return Conversation{}
	}
	return Conversation{addr.conn, streamOf(ctx)}
}

// Read records that the handler has read all messages that have come whole.
func (c Conversation) Read() {
	if c.conn != nil {
		c.conn.messageRead(c.stream)
	}
}

// streamOf returns the number of a handler's stream, 0 if it is not known. grpc-go does not export it.
func streamOf(ctx context.Context) uint32 {
	v := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx))
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
