package hostile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// serverLimits are the defaults of sluice's flags.
var serverLimits = h2.Limits{MaxStreams: 1024, MaxHeaderBytes: 128 << 10, MaxMessageBytes: 4 << 20, PingInterval: 10 * time.Second}

const (
	decides  = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	reflects = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// newServer returns a server that keeps all headers, as with --tracing, or no headers.
func newServer(keeps bool) *h2.Server {
	var all func([]byte, int) bool
	if keeps {
		all = func([]byte, int) bool { return true }
	}
	return h2.NewServer(h2.Options{
		Limits:  serverLimits,
		Methods: []h2.Method{{Path: decides, KeepHeader: all, MaxKeptBytes: 32 << 10}, {Path: reflects, ClientStreams: true, KeepHeader: all, MaxKeptBytes: 32 << 10}},
	})
}

// maxReplyBytes is the size of the largest reply of the test handler.
const maxReplyBytes = 1 << 20

// amplifier answers with many times the size of the request, and accepts only the first message of
// a stream.
type amplifier struct{}

func (amplifier) Call(c *h2.Call) ([]byte, h2.Status, h2.PendingCall) {
	return make([]byte, min(maxReplyBytes-5, 40+64*len(c.Message))), h2.Status{}, nil
}

func (amplifier) Open(*h2.Call) (h2.StreamingCall, h2.Status)     { return amplifier{}, h2.Status{} }
func (amplifier) UnknownMethod(string) h2.Status                  { return h2.Status{Code: 12} }
func (amplifier) LimitExceeded(*h2.Call, h2.Limit, int) h2.Status { return h2.Status{Code: 8} }
func (amplifier) Reset(uint32)                                    {}
func (amplifier) Receive([]byte)                                  {}
func (amplifier) RequestEnded(h2.Status)                          {}
func (amplifier) Sent(int)                                        {}
func (amplifier) Cancel()                                         {}

// bufferFiller writes frames for a connection.
type bufferFiller struct {
	*http2.Framer
	in      bytes.Buffer
	encoder *hpack.Encoder
	block   bytes.Buffer
	conn    *h2.Conn
	err     error
}

func newBufferFiller(s *h2.Server, settings ...http2.Setting) *bufferFiller {
	c := &bufferFiller{conn: s.NewConn(amplifier{}, 0)}
	c.Framer = http2.NewFramer(&c.in, nil)
	c.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	c.in.WriteString(h2.Preface)
	c.err = c.WriteSettings(settings...)
	return c
}

// headers returns the header block of a call.
func (c *bufferFiller) headers(path string, more ...string) []byte {
	c.block.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "a", "content-type", "application/grpc"}, more...)
	for i := 0; i < len(fields); i += 2 {
		c.err = errors.Join(c.err, c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(c.block.Bytes())
}

func (c *bufferFiller) begin(stream uint32, path string, more ...string) {
	block, first := c.headers(path, more...), true
	for first || len(block) > 0 {
		n := min(len(block), 16<<10)
		end := n == len(block)
		if first {
			c.err = errors.Join(c.err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:n], EndHeaders: end}))
		} else {
			c.err = errors.Join(c.err, c.WriteContinuation(stream, end, block[:n]))
		}
		block, first = block[n:], false
	}
}

// feed passes the written bytes to the connection.
func (c *bufferFiller) feed() {
	for more := true; more && c.err == nil; {
		var used int
		_, used, more, c.err = c.conn.Feed(nil, c.in.Bytes(), 0)
		c.in.Next(used)
	}
}

// message returns the length prefix of a message of the given size, and its first have bytes.
func message(size, have int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, have)...)
}

// bufferFillers are clients. Each makes a connection buffer as many bytes as possible of one kind.
var bufferFillers = map[string]func(c *bufferFiller){
	"kept headers": func(c *bufferFiller) {
		large := strings.Repeat("x", 4000)
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, decides, slices.Repeat([]string{"x", large}, 31)...)
		}
	},
	"kept empty headers": func(c *bufferFiller) {
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, decides, slices.Repeat([]string{"x", ""}, 3000)...)
		}
	},
	"too many headers by reference": func(c *bufferFiller) {
		c.err = errors.Join(c.err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.headers(decides, "x", strings.Repeat("x", 3900))}))
		for range 20 {
			c.err = errors.Join(c.err, c.WriteContinuation(1, false, bytes.Repeat([]byte{0x80 | 62}, 16<<10))) // the newest entry of the dynamic table
		}
	},
	"a header in pieces": func(c *bufferFiller) {
		c.begin(1, decides)
		// A name and a value of nearly the maximum size, both Huffman-coded.
		name := append([]byte{0, 0xff, 0x80, 0xff, 0x07}, bytes.Repeat([]byte{0x1f}, 127+128<<10-128)...)
		block := append(c.headers(decides), name...)
		c.err = errors.Join(c.err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block[:16<<10]}))
		for block = block[16<<10:]; len(block) > 16<<10; block = block[16<<10:] {
			c.err = errors.Join(c.err, c.WriteContinuation(3, false, block[:16<<10]))
		}
	},
	"incomplete requests": func(c *bufferFiller) {
		c.err = errors.Join(c.err, c.WriteSettingsAck())
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, decides)
			c.err = errors.Join(c.err, c.WriteData(id, false, message(4<<10-10, 4<<10-20)))
		}
	},
	"large incomplete requests": func(c *bufferFiller) {
		c.err = errors.Join(c.err, c.WriteSettingsAck())
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, decides)
			c.err = errors.Join(c.err, c.WriteData(id, false, message(4<<20, 4<<10-5)))
		}
		c.feed()
		for id := uint32(1); id < 8; id += 2 {
			for range 4<<20/(16<<10) - 1 {
				c.err = errors.Join(c.err, c.WriteData(id, false, make([]byte, 16<<10)))
			}
			c.feed()
		}
	},
	"requests without replies": func(c *bufferFiller) {
		c.err = errors.Join(c.err, c.WriteSettingsAck())
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, reflects)
			c.err = errors.Join(c.err, c.WriteData(id, false, message(1, 4<<10-5)))
		}
	},
	"replies without their last bytes": func(c *bufferFiller) {
		c.err = errors.Join(c.err, c.WriteSettingsAck(), c.WriteWindowUpdate(0, 1<<30))
		// Large requests that end while other replies are waiting.
		for id := uint32(1); id < 2*1024; id += 2 {
			c.begin(id, decides)
			c.err = errors.Join(c.err, c.WriteData(id, false, message(4<<10-10, 4<<10-20)))
		}
		c.err = errors.Join(c.err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4 << 10}))
		for id := uint32(1); id < 2*1024; id += 2 {
			c.err = errors.Join(c.err, c.WriteData(id, true, make([]byte, 10)))
		}
	},
}

// TestBufferBounds fills the buffers of connections as far as possible, and compares the reported
// size with the bound and with the memory in use.
func TestBufferBounds(t *testing.T) {
	if buffered := newServer(false).MaxMemoryBytes(0); buffered > 40<<20 {
		t.Errorf("a connection may buffer %d bytes in addition to replies; docs/threats.md states 40 MiB", buffered)
	}
	if more := newServer(true).MaxMemoryBytes(0) - newServer(false).MaxMemoryBytes(0); more > 1025*64<<10 {
		t.Errorf("headers may need %d bytes more; docs/threats.md states 64 KiB per call", more)
	}
	for name, play := range bufferFillers {
		t.Run(name, func(t *testing.T) {
			server := newServer(strings.HasPrefix(name, "headers"))
			bound := server.MaxMemoryBytes(maxReplyBytes)
			const conns = 2
			var all []*bufferFiller
			reported, before := 0, heapInUse()
			for range conns {
				c := newBufferFiller(server)
				play(c)
				c.feed()
				if _, ok := errors.AsType[*h2.ConnError](c.err); c.err != nil && !ok {
					t.Fatal(c.err)
				}
				buffered := c.conn.MemoryBytes()
				if t.Logf("%d bytes of %d, %d streams, %v", buffered, bound, c.conn.OpenStreams(), c.err); buffered > bound {
					t.Errorf("a connection buffers %d bytes, more than %d", buffered, bound)
				}
				reported += buffered
				c.Framer, c.in, c.block, c.encoder = nil, bytes.Buffer{}, bytes.Buffer{}, nil
				all = append(all, c)
			}
			// The runtime adds at most an eighth per object.
			if used := heapInUse() - before; used > reported+reported/8+64<<10 {
				t.Errorf("%d connections report %d bytes, but use %d", conns, reported, used)
			}
			for _, c := range all {
				c.conn.Close()
			}
		})
	}
}

func heapInUse() int {
	runtime.GC()
	runtime.GC() // frees objects with finalizers, and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
