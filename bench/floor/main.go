// Command floor is the lower bound of a gRPC server's cost: the system calls of a call, and no
// work. One goroutine per connection reads, looks for the frames that end a request, and replies to
// each with the same bytes.
//
// It decodes neither header blocks nor requests, and does no flow control except for a large
// initial window. Use it only for measurements.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/sluice-ratelimit/sluice/bench/program"
)

func main() { program.Serve("floor", serveAll) }

func serveAll(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go serve(conn)
	}
}

const (
	frameHead = 9
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameHeaders, frameSettings, framePing = 1, 4, 6
	flagEnd, flagAck                       = 1, 1
)

var (
	// settings are an empty SETTINGS frame and a window of 2 GiB for the connection's requests.
	settings = []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00")
	ack      = []byte("\x00\x00\x00\x04\x01\x00\x00\x00\x00")

	// reply is status 200 and the content type, overall_code OK with a status OK, and grpc-status
	// 0.
	reply = []byte("\x00\x00\x14\x01\x04\x00\x00\x00\x00" + "\x88\x0f\x10\x10application/grpc" +
		"\x00\x00\x0b\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x06\x08\x01\x12\x02\x08\x01" +
		"\x00\x00\x0f\x01\x05\x00\x00\x00\x00" + "\x00\x0bgrpc-status\x010")
	// replyStreams are the offsets of the stream ID in it.
	replyStreams = []int{5, 9 + 0x14 + 5, 9 + 0x14 + 9 + 0x0b + 5}
)

// serve replies until the client disconnects or sends invalid HTTP/2.
func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Write(settings); err != nil {
		return
	}
	in := make([]byte, 32<<10)
	out := make([]byte, 0, 32<<10)
	if _, err := io.ReadFull(conn, in[:len(preface)]); err != nil {
		return
	}
	for rest := 0; ; {
		n, err := conn.Read(in[rest:])
		if err != nil {
			return
		}
		var used int
		out, used = answer(out[:0], in[:rest+n])
		rest = copy(in, in[used:rest+n])
		if len(out) == 0 {
			continue
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// answer appends the replies to all complete frames, and returns the number of bytes consumed.
func answer(out, in []byte) (_ []byte, used int) {
	for {
		frame := in[used:]
		if len(frame) < frameHead {
			return out, used
		}
		size := frameHead + int(binary.BigEndian.Uint32(frame)>>8)
		if len(frame) < size {
			return out, used
		}
		used += size
		kind := frame[3]
		flags := frame[4]
		switch {
		case kind <= frameHeaders && flags&flagEnd != 0:
			start := len(out)
			out = append(out, reply...)
			for _, at := range replyStreams {
				copy(out[start+at:], frame[5:frameHead])
			}
		case kind == frameSettings && flags&flagAck == 0:
			out = append(out, ack...)
		case kind == framePing && flags&flagAck == 0:
			start := len(out)
			out = append(out, frame[:size]...)
			out[start+4] = flagAck
		}
	}
}
