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

// alike are scripts after which the connection goes on, but for few.
var alike = []struct {
	name  string
	plays func(s *script)
}{
	{"calls", func(s *script) {
		for id := uint32(1); id < 12; id += 2 {
			s.ask(id)
		}
	}},
	{"content types", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			left, "", "application/grpc", "application/grpc+proto", "application/grpc+proto;charset=utf-8", "application/grpc;charset=utf-8",
			"application/grpc+", "application/grpc;", "application/grpc+json", "application/grpc+json;x", "application/grpcx", "application/grpc-web",
			"application/grpc-web+proto", "Application/GRPC", "application/grpc ", " application/grpc", "application/json", "application/proto", "text/html", "x",
		} {
			s.ask(id, "content-type", value)
			id += 2
		}
		s.headers(id, false, append(ordinary(), fields("content-type", "application/json")...)...)
		s.data(id, true, nil)
	}},
	{"methods", func(s *script) {
		id := uint32(1)
		for _, value := range []string{left, "", "GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "post", "POST ", "X"} {
			s.ask(id, ":method", value)
			s.headers(id+2, true, ordinary(":method", value)...)
			s.headers(id+4, true, ordinary(":method", value, "content-type", left)...)
			id += 6
		}
	}},
	{"pseudo headers", func(s *script) {
		id := uint32(1)
		for _, name := range []string{":scheme", ":path", ":authority"} {
			for _, value := range []string{left, ""} {
				s.ask(id, name, value)
				id += 2
			}
		}
		for _, f := range ordinary()[:4] {
			s.headers(id, true, append(fields(f.Name, f.Value), ordinary()...)...)
			s.headers(id+2, true, append(ordinary(), f)...)
			s.headers(id+4, true, ordinary(f.Name, f.Value+"x")...)
			id += 6
		}
		for _, name := range []string{":status", ":protocol", ":", ":x", "::"} {
			s.headers(id, true, append(fields(name, "200"), ordinary()...)...)
			id += 2
		}
		s.ask(id, ":scheme", "https")
		s.ask(id+2, ":scheme", "x")
	}},
	{"host", func(s *script) {
		s.ask(1, "host", "other")
		s.ask(3, ":authority", left, "host", "other")
		s.ask(5, ":authority", left)
		s.headers(7, false, append(ordinary(), fields("host", "a", "host", "b")...)...)
		s.headers(9, true, append(ordinary(":authority", left), fields("host", "a", "host", "a")...)...)
		s.headers(11, true, append(ordinary("content-type", "text/html"), fields("host", "a", "host", "a")...)...)
		s.ask(13, "host", "")
		s.headers(15, true, append(ordinary("grpc-timeout", "x", "connection", "close"), fields("host", "a", "host", "a")...)...)
		s.headers(17, true, ordinary(":authority", left, "grpc-timeout", "x")...)
		s.headers(19, true, ordinary(":authority", left, ":method", "GET")...)
		s.headers(21, true, ordinary(":authority", left, "content-type", left)...)
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
			s.ask(id, f[0], f[1])
			id += 2
		}
		s.headers(id, true, append(ordinary(), fields("te", "trailers")...)...)
	}},
	{"names and values", func(s *script) {
		id := uint32(1)
		for _, name := range []string{"X", "x-Y", "", " ", "x y", "x:y", "x\x00", "x\x7f", "x\xff", "x\n", "x_y", "x.y", "x(y", "\"x\"", "x@y", "{x}", "~x!#$%&'*+-.^_`|", "é"} {
			s.ask(id, name, "z")
			id += 2
		}
		for b := range 256 {
			s.ask(id, "x", "a"+string([]byte{byte(b)})+"b")
			id += 2
		}
		s.ask(id, "x", " spaces ")
		s.ask(id+2, "x", "\ttab\t")
		s.ask(id+4, "x", "\xc3\x28 no UTF-8 \xff")
	}},
	{"timeouts", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			"", "1", "S", "1H", "1M", "1S", "1000m", "100000u", "99999999n", "99999999H", "99999999M", "99999999S", "99999999m", "99999999u",
			"100000000n", "000000001S", "0000001S", "0H", "0M", "0S", "0m", "0u", "0n", "00000000S", "1s", "1h", "1x", "1 S", " 1S", "1S ", "+1S", "-1S",
			"1.5S", "0x1S", "1_0S", "١S", "SS", "1SS", "S1", "\xff1S",
		} {
			s.ask(id, "grpc-timeout", value)
			s.headers(id+2, true, ordinary("grpc-timeout", value, ":path", "/unknown/Method")...)
			id += 4
		}
		s.headers(id, false, append(ordinary(), fields("grpc-timeout", "1S", "grpc-timeout", "x")...)...)
		s.headers(id+2, false, append(ordinary(), fields("grpc-timeout", "x", "grpc-timeout", "1S")...)...)
		s.headers(id+4, true, ordinary("grpc-timeout", "0S", ":method", "GET")...)
		s.headers(id+6, true, ordinary("grpc-timeout", "0S", "content-type", "text/plain")...)
	}},
	{"a deadline before the request's end", func(s *script) {
		s.headers(1, false, ordinary("grpc-timeout", "2S")...)
		s.wait(3 * time.Second)
		s.ask(3)
	}},
	{"a held reply and its deadline", func(s *script) {
		s.headers(1, false, ordinary("grpc-timeout", "2S")...)
		s.data(1, true, held(s.tb))
		for id := uint32(3); id < 9; id += 2 {
			s.headers(id, false, ordinary("grpc-timeout", "60S")...)
			s.data(id, true, held(s.tb))
		}
		s.headers(9, false, ordinary("grpc-timeout", "2S")...)
		s.data(9, true, held(s.tb))
		s.wait(time.Minute)
	}},
	{"compressed", func(s *script) {
		id := uint32(1)
		message := marshal(s.tb, simpleRequest())
		for _, encoding := range []string{left, "", "identity", "gzip", "GZIP", "deflate", "br", "gzip,identity", "x\xff", "100%"} {
			for _, body := range [][]byte{
				prefixed(0, message), prefixed(1, message), prefixed(1, zipped(message)), prefixed(1, zipped(nil)), prefixed(1, nil), prefixed(2, message),
				prefixed(0x81, message), prefixed(1, zipped(message)[:20]), prefixed(1, append(zipped(message), 'x')),
				prefixed(1, zipped(make([]byte, 20<<10))),
			} {
				s.headers(id, false, ordinary("grpc-encoding", encoding)...)
				s.data(id, true, body)
				id += 2
			}
		}
		s.ask(id, "grpc-accept-encoding", "gzip")
		s.ask(id+2, "grpc-accept-encoding", "")
		s.headers(id+4, false, append(ordinary("grpc-encoding", "gzip"), fields("grpc-encoding", "br")...)...)
		s.data(id+4, true, prefixed(0, message))
	}},
	{"messages", func(s *script) {
		id := uint32(1)
		one := s.simple(1)
		for _, body := range [][]byte{
			nil,
			{0},
			{0, 0, 0, 0},
			prefixed(0, nil), one[:5], one[:6], one[:len(one)-1], one, append(bytes.Clone(one), 0),
			append(bytes.Clone(one), one...), append(bytes.Clone(one), one[:7]...), append(bytes.Clone(one), prefixed(0, nil)...), prefixed(0, []byte("\xff")),
		} {
			s.headers(id, false, ordinary()...)
			s.data(id, true, body)
			id += 2
			s.headers(id, false, ordinary()...)
			for _, b := range body {
				s.data(id, false, []byte{b})
			}
			s.data(id, true, nil)
			id += 2
			s.headers(id, false, ordinary()...)
			s.data(id, false, body) // and nothing more
			id += 2
		}
		s.headers(id, true, ordinary()...)
	}},
	{"messages too large", func(s *script) {
		s.limit.MaxMessageBytes = 10_000
		id := uint32(1)
		for _, size := range []int{4090, 4091, 4092, 9_999, 10_000, 10_001, 20_000} {
			s.headers(id, false, ordinary()...)
			body := prefixed(0, make([]byte, size))
			n := min(len(body), 4096)
			s.data(id, n == len(body), body[:n])
			for rest := body[n:]; len(rest) > 0; {
				n := min(len(rest), 3000)
				s.data(id, n == len(rest), rest[:n])
				rest = rest[n:]
			}
			id += 2
		}
		for _, size := range []uint32{20_001, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			s.headers(id, false, ordinary()...)
			s.data(id, true, binary.BigEndian.AppendUint32([]byte{0}, size))
			id += 2
		}
		s.headers(id, false, ordinary("grpc-encoding", "gzip")...)
		s.data(id, true, prefixed(1, zipped(make([]byte, 10_001))))
		s.headers(id+2, false, ordinary("grpc-encoding", "gzip")...)
		s.data(id+2, true, prefixed(1, zipped(make([]byte, 1<<20))))
	}},
	{"binary metadata", func(s *script) {
		id := uint32(1)
		for _, value := range []string{
			"", "AAEC", "AA==", "AA", "AAE=", "AAE", "A", "A===", "AA=", "AAE==", "=", "====", "AA-_", "AA+/", "AA\xff/", "AAEC\n", "AA EC", "AAECA", "AA==AA==",
			"AB==", "AB", "AAEC,AAEC", "AAEC, AAEC", "AA,AA==", " AAEC",
		} {
			s.ask(id, "x-bin", value)
			s.headers(id+2, true, ordinary("grpc-status-details-bin", value, ":path", "/unknown/Method")...)
			id += 4
		}
		s.ask(id, "-bin", "!")
		s.ask(id+2, "x-bin-y", "!")
		s.ask(id+4, "x-bin", "!", "grpc-timeout", "x")
		s.ask(id+6, "grpc-timeout", "x", "y-bin", "!")
		s.ask(id+8, "x-bin", strings.Repeat("A", 5000))
		s.ask(id+10, "x-bin", strings.Repeat("A", 5001))
	}},
	{"paths", func(s *script) {
		id := uint32(1)
		for _, path := range []string{
			limitPath, healthPath, "/", "//", "x", "x/y", "*", "/x", "/x/y", "/x/y/z", limitPath + "/", limitPath + "x", limitPath + "?x", "/" + answer.ServiceName, "/" + answer.ServiceName + "/",
			"/" + answer.ServiceName + "/Other", "//" + answer.ServiceName + "/ShouldRateLimit", "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
			strings.ToLower(limitPath), "/x/100%", "/x/é", "/x/\xff\xfe", "/x/ ", "/\"x\"/y", "/" + strings.Repeat("x", 900) + "/y",
			"/grpc.health.v1.Health/Other", "/a/b" + strings.Repeat("%", 300),
		} {
			s.headers(id, false, ordinary(":path", path)...)
			s.data(id, true, prefixed(0, nil))
			s.headers(id+2, true, ordinary(":path", path)...)
			s.headers(id+4, false, ordinary(":path", path)...)
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
			s.headers(id, false, ordinary(":path", healthPath)...)
			s.data(id, true, prefixed(0, message))
			id += 2
		}
		s.headers(id, false, ordinary(":path", healthPath)...)
		s.data(id, true, prefixed(0, []byte{0xff}))
	}},
	{"large messages to health", func(s *script) {
		id := uint32(1)
		for _, size := range []int{4000, maxOtherMessageBytes - 3, maxOtherMessageBytes - 2, 5000} {
			message := marshal(s.tb, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", size)})
			for _, path := range []string{healthPath, "/grpc.health.v1.Health/Watch"} {
				s.headers(id, false, ordinary(":path", path)...)
				body := prefixed(0, message)
				n := min(len(body), 4096) // a stream's first window
				s.data(id, n == len(body), body[:n])
				if n < len(body) {
					s.data(id, true, body[n:])
				}
				s.headers(id+2, false, ordinary(":path", path, "grpc-encoding", "gzip")...)
				s.data(id+2, true, prefixed(1, zipped(message)))
				s.frame(s.write.WriteRSTStream(id, http2.ErrCodeCancel))
				s.frame(s.write.WriteRSTStream(id+2, http2.ErrCodeCancel))
				id += 4
			}
		}
	}},
	{"large requests that are compressed", func(s *script) {
		id := uint32(1)
		for _, size := range []int{0, 100, 8 << 10, 32 << 10, 1 << 20, 3 << 20} {
			request := simpleRequest()
			request.GetDescriptors()[0].GetEntries()[0].Value = strings.Repeat("x", size)
			small := prefixed(1, zipped(marshal(s.tb, request)))
			s.headers(id, false, ordinary("grpc-encoding", "gzip")...)
			s.data(id, true, small)
			s.headers(id+2, false, ordinary("grpc-encoding", "gzip")...)
			s.data(id+2, true, prefixed(1, small[5:len(small)-3]))
			id += 4
		}
	}},
	{"headers too large", func(s *script) {
		s.limit.MaxHeaderBytes = 4 << 10
		id := uint32(1)
		for _, size := range []int{3000, 3700, 3900, 4000, 5000, 7000} {
			s.ask(id, "x", strings.Repeat("x", size))
			s.headers(id+2, true, ordinary("x", strings.Repeat("x", size), "grpc-timeout", "0S")...)
			s.headers(id+4, true, ordinary("x", strings.Repeat("x", size), "content-type", "text/html")...)
			s.headers(id+6, true, ordinary("x", strings.Repeat("x", size), "grpc-timeout", "x")...)
			s.headers(id+8, true, ordinary("x", strings.Repeat("x", size), ":method", "GET")...)
			s.headers(id+10, true, ordinary("x", strings.Repeat("x", size), ":path", "/x")...)
			id += 12
		}
		s.ask(id, "x", strings.Repeat("x", 9000))
		s.ask(id + 2)
	}},
	{"headers in many frames", func(s *script) {
		s.ask(1, "x", strings.Repeat("~", 60<<10))
		s.ask(3, "x", strings.Repeat("~", 100<<10))
	}},
	{"many headers", func(s *script) {
		var more []string
		for i := range 300 {
			more = append(more, "x"+strings.Repeat("y", i), "z")
		}
		s.ask(1, more...)
	}},
	{"content-length", func(s *script) {
		n := len(s.simple(1))
		s.ask(1, "content-length", strconv.Itoa(n))
		s.ask(3, "content-length", strconv.Itoa(n+1))
		s.ask(5, "content-length", strconv.Itoa(n-1))
		s.ask(7, "content-length", "x")
		s.headers(9, false, append(ordinary("content-length", strconv.Itoa(n)), fields("content-length", strconv.Itoa(n+1))...)...)
	}},
	{"resets", func(s *script) {
		s.headers(1, false, ordinary()...)
		s.frame(s.write.WriteRSTStream(1, http2.ErrCodeCancel))
		s.headers(3, false, ordinary()...)
		s.data(3, false, []byte{0, 0})
		s.frame(s.write.WriteRSTStream(3, http2.ErrCodeNo))
		s.ask(5)
		s.frame(s.write.WriteRSTStream(5, http2.ErrCodeCancel))
		for id := uint32(7); id < 13; id += 2 {
			s.headers(id, false, ordinary("grpc-timeout", "60S")...)
			s.data(id, true, held(s.tb))
		}
		s.frame(s.write.WriteRSTStream(11, http2.ErrCodeInternal)) // while it is held
		s.headers(13, false, ordinary("grpc-timeout", "60S")...)
		s.data(13, true, held(s.tb))
		s.frame(s.write.WriteRSTStream(11, http2.ErrCodeInternal))
		s.wait(time.Minute)
		s.headers(15, true, ordinary(":path", "/unknown/Method")...)
		s.frame(s.write.WriteRSTStream(15, 0xffffffff))
		s.ask(17)
	}},
	{"padding", func(s *script) {
		one := s.simple(1)
		s.headers(1, false, ordinary()...)
		s.frame(s.write.WriteDataPadded(1, false, one[:3], make([]byte, 255)))
		s.frame(s.write.WriteDataPadded(1, false, nil, make([]byte, 100)))
		s.frame(s.write.WriteDataPadded(1, true, one[3:], nil))
		s.block.Reset()
		for _, f := range ordinary() {
			must.OK(s.tb, s.coder.WriteField(f))
		}
		s.note(3, false, ordinary())
		s.frame(s.write.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 3, EndHeaders: true, BlockFragment: s.block.Bytes(), PadLength: 99, Priority: http2.PriorityParam{StreamDep: 1, Weight: 3},
		}))
		s.data(3, true, one)
	}},
	{"priority", func(s *script) {
		s.frame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
		s.headers(1, false, ordinary()...)
		s.frame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 0, Exclusive: true}))
		s.data(1, true, s.simple(1))
		s.frame(s.write.WritePriority(1, http2.PriorityParam{StreamDep: 99}))
		s.frame(s.write.WriteRawFrame(0x10, 0, 0, []byte("\x00\x00\x00\x03u=3")))
		s.ask(3, "priority", "u=1")
	}},
	{"windows", func(s *script) {
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		s.ask(1)
		s.ask(3)
		s.update(3, 1)
		s.update(3, 1000)
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7}))
		s.ask(5)
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}))
		s.update(1, 5)
		s.update(5, 5)
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
		s.ask(7)
		s.update(7, 1<<20) // it has ended
		s.update(0, 1<<20)
	}},
	{"settings", func(s *script) {
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
		s.ask(1)
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}))
		s.ask(3)
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
		s.ask(5)
		s.frame(s.write.WriteSettings(http2.Setting{ID: 0xf00d, Val: 0xffffffff}))
		s.ask(7)
		s.coder.SetMaxDynamicTableSizeLimit(100)
		s.ask(9)
		s.ask(11)
	}},
	{"a small SETTINGS_MAX_HEADER_LIST_SIZE", func(s *script) {
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 60}))
		s.ask(1)
		s.headers(3, true, ordinary(":path", "/unknown/Method")...)
	}},
	{"pings", func(s *script) {
		for i := range byte(5) {
			s.frame(s.write.WritePing(false, [8]byte{i}))
			s.wait(11 * time.Second)
		}
		s.frame(s.write.WritePing(true, [8]byte{9}))
		s.ask(1)
	}},
	{"pings too often", func(s *script) {
		for i := range byte(2) {
			s.frame(s.write.WritePing(false, [8]byte{i}))
		}
		s.ask(1)
		for i := range byte(5) {
			s.frame(s.write.WritePing(false, [8]byte{i}))
		}
	}},
	{"the client's GOAWAY", func(s *script) {
		s.ask(1)
		s.frame(s.write.WriteGoAway(0, http2.ErrCodeNo, []byte("bye")))
		s.ask(3)
		s.frame(s.write.WriteGoAway(7, http2.ErrCodeInternal, nil))
		s.ask(5)
	}},
	{"unknown frames", func(s *script) {
		s.headers(1, false, ordinary()...)
		for kind := 10; kind < 256; kind += 7 {
			s.frame(s.write.WriteRawFrame(http2.FrameType(kind), 0xff, uint32(kind&1), make([]byte, kind)))
		}
		s.data(1, true, s.simple(1))
	}},
	{"unknown flags", func(s *script) {
		s.frame(s.write.WriteRawFrame(http2.FrameSettings, 0xfe, 0, nil))
		s.frame(s.write.WriteRawFrame(http2.FramePing, 0xfe, 0, make([]byte, 8)))
		s.ask(1)
	}},
	{"too many streams", func(s *script) {
		s.limit.MaxStreams = 3
		for id := uint32(1); id < 13; id += 2 {
			s.headers(id, false, ordinary("grpc-timeout", "60S")...)
			s.data(id, true, held(s.tb))
		}
		s.headers(13, false, ordinary()...)
		s.headers(15, true, ordinary(":method", "GET")...)
		s.headers(17, true, ordinary("content-type", "x")...)
		s.headers(19, true, ordinary("grpc-timeout", "0S")...)
		s.headers(21, true, ordinary(":path", "/x/y")...)
		s.frame(s.write.WriteRSTStream(3, http2.ErrCodeCancel))
		s.ask(23)
	}},
	{"numbers of streams", func(s *script) {
		s.ask(5)
		s.ask(1001)
		s.ask(1<<30 + 1)
	}},
	{"a number of three quarters", func(s *script) {
		s.ask(3<<29 - 1)
		s.ask(3<<29 + 1)
		s.ask(3<<29 + 3)
	}},
	{"the last number", func(s *script) { s.ask(1<<31 - 1) }},
}
