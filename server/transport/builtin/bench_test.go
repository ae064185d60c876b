package builtin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// BenchmarkBatch measures a batch without system calls: 64 calls received in one read, as an Envoy
// with a timeout sends them. Divide by 64 for a call.
func BenchmarkBatch(b *testing.B) {
	const calls = 64
	s := service(b, answer.Settings{}, oneRule)
	c := newConnection(New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)}), discardConn{})
	c.conn = discardConn{}
	var in bytes.Buffer
	in.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&in, nil)
	fr.AllowIllegalWrites = true
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	write := func(err error) {
		must.OK(b, err)
	}
	headers := func() []byte {
		block.Reset()
		for _, f := range requestFields("grpc-timeout", "20m") {
			write(e.WriteField(f))
		}
		return block.Bytes()
	}
	message := prefixed(marshal(b, simpleRequest()))
	call := func(stream uint32) {
		write(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: headers()}))
		write(fr.WriteData(stream, true, message))
	}
	write(errors.Join(fr.WriteSettings(), fr.WriteSettingsAck(), fr.WriteWindowUpdate(0, 1<<30)))
	call(1)
	takes := func(in []byte) {
		for len(in) > 0 {
			used, _, ok := c.processInput(in, false)
			if in = in[used:]; !ok {
				b.Fatal("the connection ended")
			}
		}
	}
	takes(in.Bytes())
	in.Reset()
	for range calls {
		call(0)
	}
	stream := uint32(1)
	for b.Loop() {
		for rest, n := in.Bytes(), 0; n < calls; n++ {
			stream += 2
			for range 2 { // frames
				binary.BigEndian.PutUint32(rest[5:], stream)
				rest = rest[9+(int(rest[1])<<8|int(rest[2])):]
			}
		}
		takes(in.Bytes())
	}
}

// discardConn is the socket of a client that reads everything.
type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }
func (discardConn) SetDeadline(time.Time) error { return nil }
func (discardConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
