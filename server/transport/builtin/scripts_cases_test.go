package builtin

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// callScripts are scripts after most of which the connection is open.
var callScripts = []struct {
	name  string
	plays func(s *script)
}{
	{"calls", func(s *script) {
		for id := uint32(1); id < 12; id += 2 {
			s.addCall(id)
		}
	}},
	{"content types", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			left, "", "application/grpc", "application/grpc+proto", "application/grpc+proto;charset=utf-8", "application/grpc;charset=utf-8",
			"application/grpc+", "application/grpc;", "application/grpc+json", "application/grpc+json;x", "application/grpcx", "application/grpc-web",
			"application/grpc-web+proto", "Application/GRPC", "application/grpc ", " application/grpc", "application/json", "application/proto", "text/html", "x",
		} {
			s.addCall(id, "content-type", value)
			id += 2
		}
		s.addHeaders(id, false, append(requestFields(), fields("content-type", "application/json")...)...)
		s.addData(id, true, nil)
	}},
	{"methods", func(s *script) {
		id := uint32(1)
		for _, value := range []string{left, "", "GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "post", "POST ", "X"} {
			s.addCall(id, ":method", value)
			s.addHeaders(id+2, true, requestFields(":method", value)...)
			s.addHeaders(id+4, true, requestFields(":method", value, "content-type", left)...)
			id += 6
		}
	}},
	{"pseudo headers", func(s *script) {
		id := uint32(1)
		for _, name := range []string{":scheme", ":path", ":authority"} {
			for _, value := range []string{left, ""} {
				s.addCall(id, name, value)
				id += 2
			}
		}
		for _, f := range requestFields()[:4] {
			s.addHeaders(id, true, append(fields(f.Name, f.Value), requestFields()...)...)
			s.addHeaders(id+2, true, append(requestFields(), f)...)
			s.addHeaders(id+4, true, requestFields(f.Name, f.Value+"x")...)
			id += 6
		}
		for _, name := range []string{":status", ":protocol", ":", ":x", "::"} {
			s.addHeaders(id, true, append(fields(name, "200"), requestFields()...)...)
			id += 2
		}
		s.addCall(id, ":scheme", "https")
		s.addCall(id+2, ":scheme", "x")
	}},
	{"host", func(s *script) {
		s.addCall(1, "host", "other")
		s.addCall(3, ":authority", left, "host", "other")
		s.addCall(5, ":authority", left)
		s.addHeaders(7, false, append(requestFields(), fields("host", "a", "host", "b")...)...)
		s.addHeaders(9, true, append(requestFields(":authority", left), fields("host", "a", "host", "a")...)...)
		s.addHeaders(11, true, append(requestFields("content-type", "text/html"), fields("host", "a", "host", "a")...)...)
		s.addCall(13, "host", "")
		s.addHeaders(15, true, append(requestFields("grpc-timeout", "x", "connection", "close"), fields("host", "a", "host", "a")...)...)
		s.addHeaders(17, true, requestFields(":authority", left, "grpc-timeout", "x")...)
		s.addHeaders(19, true, requestFields(":authority", left, ":method", "GET")...)
		s.addHeaders(21, true, requestFields(":authority", left, "content-type", left)...)
	}},
	{"te and headers of connections", func(s *script) {
		id := uint32(1)
		for _, f := range [][2]string{
			{"te", left},
			{"te", ""},
			{"te", "gzip"},
			{"te", "trailers, deflate"},
			{"te", "Trailers"},
			{"connection", "close"},
			{"connection", ""},
			{"connection", "te"},
			{"proxy-connection", "close"},
			{"keep-alive", "1"},
			{"transfer-encoding", "chunked"},
			{"transfer-encoding", "trailers"},
			{"upgrade", "h2c"},
			{"http2-settings", "AAMAAABkAAQAAP__"},
			{"expect", "100-continue"},
			{"trailer", "x"},
			{"via", "x"},
			{"cookie", "a=b"},
		} {
			s.addCall(id, f[0], f[1])
			id += 2
		}
		s.addHeaders(id, true, append(requestFields(), fields("te", "trailers")...)...)
	}},
	{"names and values", func(s *script) {
		id := uint32(1)
		for _, name := range []string{"X", "x-Y", "", " ", "x y", "x:y", "x\x00", "x\x7f", "x\xff", "x\n", "x_y", "x.y", "x(y", "\"x\"", "x@y", "{x}", "~x!#$%&'*+-.^_`|", "é"} {
			s.addCall(id, name, "z")
			id += 2
		}
		for b := range 256 {
			s.addCall(id, "x", "a"+string([]byte{byte(b)})+"b")
			id += 2
		}
		s.addCall(id, "x", " spaces ")
		s.addCall(id+2, "x", "\ttab\t")
		s.addCall(id+4, "x", "\xc3\x28 no UTF-8 \xff")
	}},
	{"timeouts", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			"", "1", "S", "1H", "1M", "1S", "1000m", "100000u", "99999999n", "99999999H", "99999999M", "99999999S", "99999999m", "99999999u",
			"100000000n", "000000001S", "0000001S", "0H", "0M", "0S", "0m", "0u", "0n", "00000000S", "1s", "1h", "1x", "1 S", " 1S", "1S ", "+1S", "-1S",
			"1.5S", "0x1S", "1_0S", "١S", "SS", "1SS", "S1", "\xff1S",
		} {
			s.addCall(id, "grpc-timeout", value)
			s.addHeaders(id+2, true, requestFields("grpc-timeout", value, ":path", "/unknown/Method")...)
			id += 4
		}
		s.addHeaders(id, false, append(requestFields(), fields("grpc-timeout", "1S", "grpc-timeout", "x")...)...)
		s.addHeaders(id+2, false, append(requestFields(), fields("grpc-timeout", "x", "grpc-timeout", "1S")...)...)
		s.addHeaders(id+4, true, requestFields("grpc-timeout", "0S", ":method", "GET")...)
		s.addHeaders(id+6, true, requestFields("grpc-timeout", "0S", "content-type", "text/plain")...)
	}},
	{"a deadline before the request's end", func(s *script) {
		s.addHeaders(1, false, requestFields("grpc-timeout", "2S")...)
		s.addWait(3 * time.Second)
		s.addCall(3)
	}},
	{"a held reply and its deadline", func(s *script) {
		s.addHeaders(1, false, requestFields("grpc-timeout", "2S")...)
		s.addData(1, true, delayedRequest(s.tb))
		for id := uint32(3); id < 9; id += 2 {
			s.addHeaders(id, false, requestFields("grpc-timeout", "60S")...)
			s.addData(id, true, delayedRequest(s.tb))
		}
		s.addHeaders(9, false, requestFields("grpc-timeout", "2S")...)
		s.addData(9, true, delayedRequest(s.tb))
		s.addWait(time.Minute)
	}},
	{"compressed", func(s *script) {
		id := uint32(1)
		message := marshal(s.tb, simpleRequest())
		for _, encoding := range []string{left, "", "identity", "gzip", "IDENTITY", "gzip,identity", "x\xff", "100%"} {
			for _, body := range [][]byte{
				prefixed(0, message), prefixed(1, message), prefixed(1, nil), prefixed(2, message), prefixed(0x81, message),
			} {
				s.addHeaders(id, false, requestFields("grpc-encoding", encoding)...)
				s.addData(id, true, body)
				id += 2
			}
		}
		s.addCall(id, "grpc-accept-encoding", "gzip")
		s.addCall(id+2, "grpc-accept-encoding", "")
		s.addHeaders(id+4, false, append(requestFields("grpc-encoding", "gzip"), fields("grpc-encoding", "br")...)...)
		s.addData(id+4, true, prefixed(0, message))
	}},
	{"messages", func(s *script) {
		id := uint32(1)
		one := s.addSimpleCall(1)
		for _, body := range [][]byte{
			nil,
			{0},
			{0, 0, 0, 0},
			prefixed(0, nil), one[:5], one[:6], one[:len(one)-1], one, append(bytes.Clone(one), 0),
			append(bytes.Clone(one), one...), append(bytes.Clone(one), one[:7]...), append(bytes.Clone(one), prefixed(0, nil)...), prefixed(0, []byte("\xff")),
		} {
			s.addHeaders(id, false, requestFields()...)
			s.addData(id, true, body)
			id += 2
			s.addHeaders(id, false, requestFields()...)
			for _, b := range body {
				s.addData(id, false, []byte{b})
			}
			s.addData(id, true, nil)
			id += 2
			s.addHeaders(id, false, requestFields()...)
			s.addData(id, false, body) // and nothing more
			id += 2
		}
		s.addHeaders(id, true, requestFields()...)
	}},
	{"messages too large", func(s *script) {
		s.limit.MaxMessageBytes = 10_000
		id := uint32(1)
		for _, size := range []int{4090, 4091, 4092, 9_999, 10_000, 10_001, 20_000} {
			s.addHeaders(id, false, requestFields()...)
			body := prefixed(0, make([]byte, size))
			n := min(len(body), 4096)
			s.addData(id, n == len(body), body[:n])
			for rest := body[n:]; len(rest) > 0; {
				n := min(len(rest), 3000)
				s.addData(id, n == len(rest), rest[:n])
				rest = rest[n:]
			}
			id += 2
		}
		for _, size := range []uint32{20_001, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			s.addHeaders(id, false, requestFields()...)
			s.addData(id, true, binary.BigEndian.AppendUint32([]byte{0}, size))
			id += 2
		}
	}},
	{"binary metadata", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			"", "AAEC", "AA==", "AA", "AAE=", "AAE", "A", "A===", "AA=", "AAE==", "=", "====", "AA-_", "AA+/", "AA\xff/", "AAEC\n", "AA EC", "AAECA", "AA==AA==",
			"AB==", "AB", "AAEC,AAEC", "AAEC, AAEC", "AA,AA==", " AAEC",
		} {
			s.addCall(id, "x-bin", value)
			s.addHeaders(id+2, true, requestFields("grpc-status-details-bin", value, ":path", "/unknown/Method")...)
			id += 4
		}
		s.addCall(id, "-bin", "!")
		s.addCall(id+2, "x-bin-y", "!")
		s.addCall(id+4, "x-bin", "!", "grpc-timeout", "x")
		s.addCall(id+6, "grpc-timeout", "x", "y-bin", "!")
		s.addCall(id+8, "x-bin", strings.Repeat("A", 5000))
		s.addCall(id+10, "x-bin", strings.Repeat("A", 5001))
	}},
	{"paths", func(s *script) {
		id := uint32(1)
		for _, path := range []string{
			limitPath, healthPath, "/", "//", "x", "x/y", "*", "/x", "/x/y", "/x/y/z", limitPath + "/", limitPath + "x", limitPath + "?x", "/" + answer.ServiceName, "/" + answer.ServiceName + "/",
			"/" + answer.ServiceName + "/Other", "//" + answer.ServiceName + "/ShouldRateLimit", "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
			strings.ToLower(limitPath), "/x/100%", "/x/é", "/x/\xff\xfe", "/x/ ", "/\"x\"/y", "/" + strings.Repeat("x", 900) + "/y",
			"/grpc.health.v1.Health/Other", "/a/b" + strings.Repeat("%", 300),
		} {
			s.addHeaders(id, false, requestFields(":path", path)...)
			s.addData(id, true, prefixed(0, nil))
			s.addHeaders(id+2, true, requestFields(":path", path)...)
			s.addHeaders(id+4, false, requestFields(":path", path)...)
			id += 6
		}
	}},
	{"health", func(s *script) {
		id := uint32(1)
		for _, service := range []string{"", answer.ServiceName, "ratelimit", "other", "\xc3"} {
			message := append([]byte{10, byte(len(service))}, service...)
			if service == "" {
				message = marshal(s.tb, &grpc_health_v1.HealthCheckRequest{})
			}
			s.addHeaders(id, false, requestFields(":path", healthPath)...)
			s.addData(id, true, prefixed(0, message))
			id += 2
		}
		s.addHeaders(id, false, requestFields(":path", healthPath)...)
		s.addData(id, true, prefixed(0, []byte{0xff}))
	}},
	{"large messages to health", func(s *script) {
		id := uint32(1)
		for _, size := range []int{4000, maxOtherMessageBytes - 3, maxOtherMessageBytes - 2, 5000} {
			message := marshal(s.tb, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", size)})
			for _, path := range []string{healthPath, "/grpc.health.v1.Health/Watch"} {
				s.addHeaders(id, false, requestFields(":path", path)...)
				body := prefixed(0, message)
				n := min(len(body), 4096) // a stream's first window
				s.addData(id, n == len(body), body[:n])
				if n < len(body) {
					s.addData(id, true, body[n:])
				}
				s.addFrame(s.write.WriteRSTStream(id, http2.ErrCodeCancel))
				id += 2
			}
		}
	}},
	{"headers too large", func(s *script) {
		s.limit.MaxHeaderBytes = 4 << 10
		id := uint32(1)
		for _, size := range []int{3000, 3700, 3900, 4000, 5000, 7000} {
			s.addCall(id, "x", strings.Repeat("x", size))
			s.addHeaders(id+2, true, requestFields("x", strings.Repeat("x", size), "grpc-timeout", "0S")...)
			s.addHeaders(id+4, true, requestFields("x", strings.Repeat("x", size), "content-type", "text/html")...)
			s.addHeaders(id+6, true, requestFields("x", strings.Repeat("x", size), "grpc-timeout", "x")...)
			s.addHeaders(id+8, true, requestFields("x", strings.Repeat("x", size), ":method", "GET")...)
			s.addHeaders(id+10, true, requestFields("x", strings.Repeat("x", size), ":path", "/x")...)
			id += 12
		}
		s.addCall(id, "x", strings.Repeat("x", 9000))
		s.addCall(id + 2)
	}},
	{"headers in many frames", func(s *script) {
		s.addCall(1, "x", strings.Repeat("~", 60<<10))
		s.addCall(3, "x", strings.Repeat("~", 100<<10))
	}},
	{"many headers", func(s *script) {
		var more []string
		for i := range 300 {
			more = append(more, "x"+strings.Repeat("y", i), "z")
		}
		s.addCall(1, more...)
	}},
	{"content-length", func(s *script) {
		n := len(s.addSimpleCall(1))
		s.addCall(1, "content-length", strconv.Itoa(n))
		s.addCall(3, "content-length", strconv.Itoa(n+1))
		s.addCall(5, "content-length", strconv.Itoa(n-1))
		s.addCall(7, "content-length", "x")
		s.addHeaders(9, false, append(requestFields("content-length", strconv.Itoa(n)), fields("content-length", strconv.Itoa(n+1))...)...)
	}},
	{"resets", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		s.addFrame(s.write.WriteRSTStream(1, http2.ErrCodeCancel))
		s.addHeaders(3, false, requestFields()...)
		s.addData(3, false, []byte{0, 0})
		s.addFrame(s.write.WriteRSTStream(3, http2.ErrCodeNo))
		s.addCall(5)
		s.addFrame(s.write.WriteRSTStream(5, http2.ErrCodeCancel))
		for id := uint32(7); id < 13; id += 2 {
			s.addHeaders(id, false, requestFields("grpc-timeout", "60S")...)
			s.addData(id, true, delayedRequest(s.tb))
		}
		s.addFrame(s.write.WriteRSTStream(11, http2.ErrCodeInternal)) // while it is held
		s.addHeaders(13, false, requestFields("grpc-timeout", "60S")...)
		s.addData(13, true, delayedRequest(s.tb))
		s.addFrame(s.write.WriteRSTStream(11, http2.ErrCodeInternal))
		s.addWait(time.Minute)
		s.addHeaders(15, true, requestFields(":path", "/unknown/Method")...)
		s.addFrame(s.write.WriteRSTStream(15, 0xffffffff))
		s.addCall(17)
	}},
	{"padding", func(s *script) {
		one := s.addSimpleCall(1)
		s.addHeaders(1, false, requestFields()...)
		s.addFrame(s.write.WriteDataPadded(1, false, one[:3], make([]byte, 255)))
		s.addFrame(s.write.WriteDataPadded(1, false, nil, make([]byte, 100)))
		s.addFrame(s.write.WriteDataPadded(1, true, one[3:], nil))
		s.block.Reset()
		for _, f := range requestFields() {
			must.OK(s.tb, s.coder.WriteField(f))
		}
		s.expectRequest(3, false, requestFields())
		s.addFrame(s.write.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 3, EndHeaders: true, BlockFragment: s.block.Bytes(), PadLength: 99, Priority: http2.PriorityParam{StreamDep: 1, Weight: 3},
		}))
		s.addData(3, true, one)
	}},
	{"priority", func(s *script) {
		s.addFrame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
		s.addHeaders(1, false, requestFields()...)
		s.addFrame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 0, Exclusive: true}))
		s.addData(1, true, s.addSimpleCall(1))
		s.addFrame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 99}))
		s.addFrame(s.write.WriteRawFrame(0x10, 0, 0, []byte("\x00\x00\x00\x03u=3")))
		s.addCall(3, "priority", "u=1")
	}},
	{"windows", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		s.addCall(1)
		s.addCall(3)
		s.addWindowUpdate(3, 1)
		s.addWindowUpdate(3, 1000)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7}))
		s.addCall(5)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}))
		s.addWindowUpdate(1, 5)
		s.addWindowUpdate(5, 5)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
		s.addCall(7)
		s.addWindowUpdate(7, 1<<20) // it has ended
		s.addWindowUpdate(0, 1<<20)
	}},
	{"settings", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
		s.addCall(1)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}))
		s.addCall(3)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
		s.addCall(5)
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: 0xf00d, Val: 0xffffffff}))
		s.addCall(7)
		s.coder.SetMaxDynamicTableSizeLimit(100)
		s.addCall(9)
		s.addCall(11)
	}},
	{"a small SETTINGS_MAX_HEADER_LIST_SIZE", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 60}))
		s.addCall(1)
		s.addHeaders(3, true, requestFields(":path", "/unknown/Method")...)
	}},
	{"pings", func(s *script) {
		for i := range byte(5) {
			s.addFrame(s.write.WritePing(false, [8]byte{i}))
			s.addWait(11 * time.Second)
		}
		s.addFrame(s.write.WritePing(true, [8]byte{9}))
		s.addCall(1)
	}},
	{"pings too often", func(s *script) {
		for i := range byte(2) {
			s.addFrame(s.write.WritePing(false, [8]byte{i}))
		}
		s.addCall(1)
		for i := range byte(5) {
			s.addFrame(s.write.WritePing(false, [8]byte{i}))
		}
	}},
	{"the client's GOAWAY", func(s *script) {
		s.addCall(1)
		s.addFrame(s.write.WriteGoAway(0, http2.ErrCodeNo, []byte("bye")))
		s.addCall(3)
		s.addFrame(s.write.WriteGoAway(7, http2.ErrCodeInternal, nil))
		s.addCall(5)
	}},
	{"unknown frames", func(s *script) {
		s.addHeaders(1, false, requestFields()...)
		for kind := 10; kind < 256; kind += 7 {
			s.addFrame(s.write.WriteRawFrame(http2.FrameType(kind), 0xff, uint32(kind&1), make([]byte, kind)))
		}
		s.addData(1, true, s.addSimpleCall(1))
	}},
	{"unknown flags", func(s *script) {
		s.addFrame(s.write.WriteRawFrame(http2.FrameSettings, 0xfe, 0, nil))
		s.addFrame(s.write.WriteRawFrame(http2.FramePing, 0xfe, 0, make([]byte, 8)))
		s.addCall(1)
	}},
	{"too many streams", func(s *script) {
		s.limit.MaxStreams = 3
		for id := uint32(1); id < 13; id += 2 {
			s.addHeaders(id, false, requestFields("grpc-timeout", "60S")...)
			s.addData(id, true, delayedRequest(s.tb))
		}
		s.addHeaders(13, false, requestFields()...)
		s.addHeaders(15, true, requestFields(":method", "GET")...)
		s.addHeaders(17, true, requestFields("content-type", "x")...)
		s.addHeaders(19, true, requestFields("grpc-timeout", "0S")...)
		s.addHeaders(21, true, requestFields(":path", "/x/y")...)
		s.addFrame(s.write.WriteRSTStream(3, http2.ErrCodeCancel))
		s.addCall(23)
	}},
	{"numbers of streams", func(s *script) {
		s.addCall(5)
		s.addCall(1001)
		s.addCall(1<<30 + 1)
	}},
	{"a number of three quarters", func(s *script) {
		s.addCall(3<<29 - 1)
		s.addCall(3<<29 + 1)
		s.addCall(3<<29 + 3)
	}},
	{"the last number", func(s *script) { s.addCall(1<<31 - 1) }},
}
