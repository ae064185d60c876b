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

// hostileClient is an HTTP/2 connection whose streams report to the quota service. Its window
// bounds the response bytes that it accepts.
type hostileClient struct {
	conn    net.Conn
	writing sync.Mutex // guards fr
	fr      *http2.Framer

	mu      sync.Mutex
	changed *sync.Cond
	windows map[uint32]int  // by stream, 0 for the connection
	ended   map[uint32]bool // by stream, 0 for the connection
}

// initialWindow is the number of bytes that a stream may send before the first WINDOW_UPDATE.
const initialWindow = 4 << 10

// newHostileClient connects to sluice. The connection is closed when the test ends.
func newHostileClient(tb testing.TB, addr string, window uint32) *hostileClient {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", addr)
	must.OK(tb, err)
	h := &hostileClient{conn: conn, fr: http2.NewFramer(conn, conn), windows: map[uint32]int{0: 65535}, ended: map[uint32]bool{}}
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

// read processes frames until the connection ends.
func (h *hostileClient) read() {
	defer h.markEnded(0)
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.write(h.fr.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				h.write(func() error { return h.fr.WritePing(true, f.Data) })
			}
		case *http2.WindowUpdateFrame:
			h.mu.Lock()
			h.windows[f.StreamID] += int(f.Increment)
			h.changed.Broadcast()
			h.mu.Unlock()
		case *http2.RSTStreamFrame:
			h.markEnded(f.StreamID)
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				h.markEnded(f.StreamID)
			}
		}
	}
}

// markEnded records the end of a stream; 0 is the connection.
func (h *hostileClient) markEnded(stream uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended[stream] = true
	h.changed.Broadcast()
}

// write calls f, which writes a frame, and reports whether it succeeds.
func (h *hostileClient) write(f func() error) bool {
	h.writing.Lock()
	defer h.writing.Unlock()
	return f() == nil
}

// open opens a stream to the quota service.
func (h *hostileClient) open(stream uint32) {
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
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a write to a buffer never fails
	}
	h.mu.Lock()
	h.windows[stream] += initialWindow
	h.mu.Unlock()
	h.write(func() error {
		return h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	})
}

// send sends a message. It returns early if the stream or the connection ends.
func (h *hostileClient) send(stream uint32, message []byte) {
	for remaining := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...); len(remaining) > 0; {
		n := h.reserveWindow(stream, len(remaining))
		if n == 0 || !h.write(func() error { return h.fr.WriteData(stream, false, remaining[:n]) }) {
			return
		}
		remaining = remaining[n:]
	}
}

// reserveWindow waits until the send window is open and reserves up to most bytes of it. It returns
// 0 if the stream or the connection has ended.
func (h *hostileClient) reserveWindow(stream uint32, most int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.ended[0] || h.ended[stream] {
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

// manyUsers returns a report of one request for each of n users that no other stream reports.
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

// appendField appends a length-delimited field of less than 128 bytes.
func appendField(b []byte, number byte, value string) []byte {
	return append(append(b, number<<3|2, byte(len(value))), value...)
}

// attack opens connections with the given number of streams each, and reports ids bucket IDs on
// each stream. The clients read up to window bytes of responses on a stream.
func attack(tb testing.TB, addr string, window uint32, connections, streams, ids int) {
	tb.Helper()
	var all sync.WaitGroup
	for i := range connections {
		h := newHostileClient(tb, addr, window)
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
