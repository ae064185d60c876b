package builtin

import (
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// closingScripts are scripts that close the connection.
var closingScripts = []struct {
	name  string
	plays func(s *script)
}{
	{"a frame too large", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, mostFrame+1))) }},
	{"DATA on stream 0", func(s *script) { s.addData(0, true, nil) }},
	{"DATA on an idle stream", func(s *script) { s.addData(1, true, nil) }},
	{"DATA on a stream that has ended", func(s *script) { s.addCall(1); s.addData(1, true, nil) }},
	{"DATA after the end", func(s *script) {
		for id := uint32(1); id < 5; id += 2 {
			s.addHeaders(id, false, requestFields("grpc-timeout", "60S")...)
			s.addData(id, true, delayedRequest(s.tb))
		}
		s.addData(3, true, nil)
		s.addCall(5)
	}},
	{"HEADERS on stream 0", func(s *script) { s.addHeaders(0, true, requestFields()...) }},
	{"HEADERS on an even stream", func(s *script) { s.addHeaders(2, true, requestFields()...) }},
	{"HEADERS on a lower stream", func(s *script) { s.addCall(5); s.addHeaders(3, true, requestFields()...) }},
	{"HEADERS on a closed stream", func(s *script) { s.addCall(5); s.addHeaders(5, true, requestFields()...) }},
	{"trailers", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addData(1, false, s.addSimpleCall(1))
		s.addHeaders(1, true, fields("x", "y")...)
	}},
	{"a frame within a block", func(s *script) {
		s.addFrame(s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
		s.addFrame(s.write.WritePing(false, [8]byte{}))
	}},
	{"CONTINUATION of nothing", func(s *script) { s.addFrame(s.write.WriteContinuation(1, true, nil)) }},
	{"CONTINUATION of another stream", func(s *script) {
		s.addFrame(s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
		s.addFrame(s.write.WriteContinuation(3, true, []byte{0x82}))
	}},
	{"an empty CONTINUATION", func(s *script) {
		s.addFrame(s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
		s.addFrame(s.write.WriteContinuation(1, false, nil))
	}},
	{"an index of no table", func(s *script) { s.addBlocks(1, true, []byte{0xff, 0x7f}) }},
	{"an invalid Huffman code", func(s *script) { s.addBlocks(1, true, []byte{0x00, 0x81, 0xff, 0x00}) }},
	{"a size update too large", func(s *script) { s.addBlocks(1, true, []byte{0x3f, 0xe2, 0x1f, 0x82}) }},
	{"a block that ends early", func(s *script) { s.addBlocks(1, true, []byte{0x40, 0x05}) }},
	{"padding only", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameData, 8, 1, []byte{9})) }},
	{"RST_STREAM on an idle stream", func(s *script) { s.addFrame(s.write.WriteRSTStream(1, http2.ErrCodeCancel)) }},
	{"RST_STREAM on stream 0", func(s *script) { s.addFrame(s.write.WriteRSTStream(0, http2.ErrCodeCancel)) }},
	{"RST_STREAM of five bytes", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addFrame(s.write.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 5)))
	}},
	{"WINDOW_UPDATE of five bytes", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 5))) }},
	{"WINDOW_UPDATE of nothing", func(s *script) { s.addWindowUpdate(0, 0) }},
	{"WINDOW_UPDATE of nothing on a stream", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addWindowUpdate(1, 0)
		s.addCall(3)
	}},
	{"WINDOW_UPDATE on an idle stream", func(s *script) { s.addWindowUpdate(1, 1) }},
	{"a window too large", func(s *script) { s.addWindowUpdate(0, 1<<31-1) }},
	{"a stream's window too large", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addWindowUpdate(1, 1<<31-1)
		s.addCall(3)
	}},
	{"more than a stream's window", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addData(1, false, prefixed(0, make([]byte, 6000))[:4096])
		s.addData(1, false, make([]byte, 16_000))
		for range 8 {
			s.addData(1, false, make([]byte, 16_000))
		}
	}},
	{"SETTINGS on a stream", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameSettings, 0, 1, nil)) }},
	{"SETTINGS of seven bytes", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 7))) }},
	{"SETTINGS ACK with payload", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameSettings, 1, 0, make([]byte, 6))) }},
	{"ENABLE_PUSH of 2", func(s *script) { s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})) }},
	{"MAX_FRAME_SIZE of 1", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}))
	}},
	{"INITIAL_WINDOW_SIZE of 2^31", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
	}},
	{"33 settings", func(s *script) { s.addFrame(s.write.WriteSettings(make([]http2.Setting, 33)...)) }},
	{"PING on a stream", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8))) }},
	{"PING of seven bytes", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7))) }},
	{"GOAWAY on a stream", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8))) }},
	{"GOAWAY of seven bytes", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FrameGoAway, 0, 0, make([]byte, 7))) }},
	{"PUSH_PROMISE", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addFrame(s.write.WriteRawFrame(http2.FramePushPromise, 4, 1, []byte{0, 0, 0, 2, 0x82}))
	}},
	{"PRIORITY on stream 0", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FramePriority, 0, 0, make([]byte, 5))) }},
	{"PRIORITY of four bytes", func(s *script) { s.addFrame(s.write.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 4))) }},
	{"a stream that depends on itself", func(s *script) {
		s.addFrame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 1}))
		s.addCall(3)
	}},
	{"a flood of PRIORITY", func(s *script) {
		for range 2000 {
			must.OK(s.tb, s.write.WritePriority(1, http2.PriorityParam{}))
		}
		s.addFrame(nil)
	}},
	{"no preface", func(s *script) { s.steps = []step{{bytes: []byte("GET / HTTP/1.1\r\nHost: sluice\r\n\r\n")}} }},
	{"no SETTINGS", func(s *script) {
		s.steps = []step{{bytes: []byte(http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")}}
	}},
}
