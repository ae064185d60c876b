package quota_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// hostile is a connection of a client that reports to the quota service. Its window bounds the answers that it reads.
type hostile struct {
	conn    net.Conn
	writing sync.Mutex // guards fr
	fr      *http2.Framer

	mu      sync.Mutex
	changed *sync.Cond
	windows map[uint32]int  // by stream, 0 for the connection
	over    map[uint32]bool // likewise
}

// firstWindow is how much a stream may send before it gets more.
const firstWindow = 4 << 10

// newHostile connects to sluice until the test ends.
func newHostile(tb testing.TB, addr string, window uint32) *hostile {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", addr)
	must.OK(tb, err)
	h := &hostile{conn: conn, fr: http2.NewFramer(conn, conn), windows: map[uint32]int{0: 65535}, over: map[uint32]bool{}}
	h.changed = sync.NewCond(&h.mu)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		tb.Fatal(err)
	}
	must.OK(tb, h.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	if window > 0 {
		must.OK(tb, h.fr.WriteWindowUpdate(0, window))
	}
	var reading sync.WaitGroup
	reading.Go(h.read)
	tb.Cleanup(func() {
		_ = conn.Close()
		reading.Wait()
	})
	return h
}

// read takes in frames until the connection ends.
func (h *hostile) read() {
	defer h.ends(0)
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.writes(h.fr.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				h.writes(func() error { return h.fr.WritePing(true, f.Data) })
			}
		case *http2.WindowUpdateFrame:
			h.mu.Lock()
			h.windows[f.StreamID] += int(f.Increment)
			h.changed.Broadcast()
			h.mu.Unlock()
		case *http2.RSTStreamFrame:
			h.ends(f.StreamID)
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				h.ends(f.StreamID)
			}
		}
	}
}

// ends notes the end of a stream, or of the connection.
func (h *hostile) ends(stream uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over[stream] = true
	h.changed.Broadcast()
}

func (h *hostile) writes(write func() error) bool {
	h.writing.Lock()
	defer h.writing.Unlock()
	return write() == nil
}

// open opens a stream of the quota service.
func (h *hostile) open(stream uint32) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSizeLimit(0)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"},
		{":authority", "sluice"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to a buffer
	}
	h.mu.Lock()
	h.windows[stream] += firstWindow
	h.mu.Unlock()
	h.writes(func() error {
		return h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	})
}

// send sends a message, until the stream or the connection ends.
func (h *hostile) send(stream uint32, message []byte) {
	for rest := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...); len(rest) > 0; {
		n := h.window(stream, len(rest))
		if n == 0 || !h.writes(func() error { return h.fr.WriteData(stream, false, rest[:n]) }) {
			return
		}
		rest = rest[n:]
	}
}

// window waits for a window, and takes at most most bytes of it. It returns 0 at the end of the stream or of the connection.
func (h *hostile) window(stream uint32, most int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.over[0] || h.over[stream] {
			return 0
		}
		if n := min(most, 16<<10, h.windows[0], h.windows[stream]); n > 0 {
			h.windows[0] -= n
			h.windows[stream] -= n
			return n
		}
		h.changed.Wait()
	}
}

// manyUsers is a report of a request of each of n users that only this stream has.
func manyUsers(stream, n int) []byte {
	b := appendField(nil, 1, "d")
	for i := range n {
		entry := func(key, value string) string {
			return string(appendField(nil, 1, string(appendField(appendField(nil, 1, key), 2, value))))
		}
		usage := appendField(nil, 1, entry("sluice", "user")+entry("user", fmt.Sprint(stream, "-", i)))
		b = appendField(b, 2, string(append(usage, 3<<3, 1)))
	}
	return b
}

// appendField appends a field of a message that has less than 128 bytes.
func appendField(b []byte, number byte, value string) []byte {
	return append(append(b, number<<3|2, byte(len(value))), value...)
}

// attack has clients report ids, over this many connections with this many streams each. They read answers of up to window bytes
// on a stream.
func attack(tb testing.TB, addr string, window uint32, connections, streams, ids int) {
	tb.Helper()
	var all sync.WaitGroup
	for i := range connections {
		h := newHostile(tb, addr, window)
		all.Go(func() {
			for j := range streams {
				stream := uint32(2*j + 1)
				h.open(stream)
				h.send(stream, manyUsers(i*streams+j, ids))
			}
		})
	}
	all.Wait()
}
