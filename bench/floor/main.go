// Command floor is a rate-limit service that is none: the least that any server of gRPC
// does for a call, its system calls. One goroutine a connection reads, looks for the
// frames that end a request, and answers each with the same bytes.
//
// It decodes neither header blocks nor requests, and keeps no window but the one that it
// opened wide at the beginning. So it is to be measured and nothing else.
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
	// settings are none, and a window of 2 GiB for the connection's requests.
	settings = []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00")
	ack      = []byte("\x00\x00\x00\x04\x01\x00\x00\x00\x00")

	// reply is status 200 and the type, overall_code OK with a status OK, grpc-status 0.
	reply = []byte("\x00\x00\x14\x01\x04\x00\x00\x00\x00" + "\x88\x0f\x10\x10application/grpc" +
		"\x00\x00\x0b\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x06\x08\x01\x12\x02\x08\x01" +
		"\x00\x00\x0f\x01\x05\x00\x00\x00\x00" + "\x00\x0bgrpc-status\x010")
	// replyStreams are where the numbers of the stream stand in it.
	replyStreams = []int{5, 9 + 0x14 + 5, 9 + 0x14 + 9 + 0x0b + 5}
)

// serve answers until the client hangs up or sends what is no HTTP/2.
func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Write(settings); err != nil {
		return
	}
	in, out := make([]byte, 32<<10), make([]byte, 0, 32<<10)
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

// answer appends the answers to all whole frames, and returns how many bytes these are.
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
		kind, flags := frame[3], frame[4]
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
