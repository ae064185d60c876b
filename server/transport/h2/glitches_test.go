package h2

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestOrdinaryClientsStayWithinBudget makes 5000 calls as real clients make them. The clock stands
// still, so time does not refill the budget of glitches.
func TestOrdinaryClientsStayWithinBudget(t *testing.T) {
	for name, call := range map[string]func(c *client, stream uint32){
		"calls": func(c *client, stream uint32) { c.call(stream, "hello") },
		"unanswered calls with the window updates of gRPC's C core": func(c *client, stream uint32) {
			c.headers(stream, false, request(echoPath)...)
			c.must(c.WriteWindowUpdate(stream, 5))
			c.must(c.WriteData(stream, true, grpcMessage("later")))
			c.must(c.WriteWindowUpdate(0, 5))
		},
		"a ping and window updates for each answer": func(c *client, stream uint32) {
			c.call(stream, "hello")
			for range 6 {
				c.must(c.WriteWindowUpdate(0, 10))
				c.must(c.WriteWindowUpdate(stream, 10))
			}
			c.must(c.WritePing(false, [8]byte{}))
		},
		"calls that are cancelled": func(c *client, stream uint32) {
			c.call(stream, "later")
			c.must(c.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"incomplete calls cancelled": func(c *client, stream uint32) {
			c.headers(stream, false, request(echoPath)...)
			c.must(c.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"END_STREAM in a separate frame": func(c *client, stream uint32) {
			c.headers(stream, false, request(echoPath)...)
			c.must(c.WriteData(stream, false, grpcMessage("hello")))
			c.must(c.WriteData(stream, true, nil))
		},
		"unknown methods": func(c *client, stream uint32) {
			c.headers(stream, false, request("/unknown")...)
			c.must(c.WriteData(stream, true, grpcMessage("hello")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReadyClient(t, func(o *Options) { o.Limits.MaxStreams = 10_000 })
			for i := range uint32(5000) {
				call(c, 1+2*i)
				c.feed()
				c.out = c.out[:0]
				if c.err != nil {
					t.Fatalf("the connection ended at call %d: %v", i, c.err)
				}
			}
		})
	}
}

func TestFloods(t *testing.T) {
	for name, frame := range map[string]func(c *client, n uint32) error{
		"PING":     func(c *client, _ uint32) error { return c.WritePing(false, [8]byte{}) },
		"SETTINGS": func(c *client, _ uint32) error { return c.WriteSettings() },
		"SETTINGS of an extension": func(c *client, _ uint32) error {
			return c.WriteSettings(http2.Setting{ID: 0xff, Val: 1}, http2.Setting{ID: 0xff, Val: 2})
		},
		"SETTINGS ACK":  func(c *client, _ uint32) error { return c.WriteSettingsAck() },
		"WINDOW_UPDATE": func(c *client, _ uint32) error { return c.WriteWindowUpdate(0, 1) },
		"PRIORITY":      func(c *client, _ uint32) error { return c.WritePriority(1, http2.PriorityParam{}) },
		"GOAWAY":        func(c *client, _ uint32) error { return c.WriteGoAway(0, 0, nil) },
		"unknown": func(c *client, n uint32) error {
			return c.WriteRawFrame(http2.FrameType(10+n%200), 0, 0, nil)
		},
		"small CONTINUATION": func(c *client, n uint32) error {
			if n == 0 {
				c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
			}
			return c.WriteContinuation(1, false, []byte{0x86})
		},
		"empty DATA": func(c *client, n uint32) error {
			if n == 0 {
				c.headers(1, false, request(echoPath)...)
			}
			return c.WriteData(1, false, nil)
		},
		"empty DATA of a stream that ended long ago": func(c *client, n uint32) error {
			if n == 0 {
				for id := uint32(1); id < 200; id += 2 {
					c.call(id, "hello")
				}
				c.feed()
			}
			return c.WriteData(1, true, nil)
		},
		"trailers of a stream that has been reset": func(c *client, n uint32) error {
			if n == 0 {
				c.call(1, "later")
				c.must(c.WriteWindowUpdate(1, 0))
				c.headers(3, false, request("/unknown")...)
			}
			c.headers(3, true, "x", "y")
			return nil
		},
		"RST_STREAM of a stream that has ended": func(c *client, n uint32) error {
			if n == 0 {
				c.call(1, "hello")
			}
			return c.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		"MadeYouReset": func(c *client, n uint32) error {
			c.call(1+2*n, "later")
			return c.WriteWindowUpdate(1+2*n, 0)
		},
		"MadeYouReset while replies wait": func(c *client, n uint32) error {
			if n == 0 {
				c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			}
			c.call(1+2*n, "hello")
			return c.WriteWindowUpdate(1+2*n, 0)
		},
		"malformed calls": func(c *client, n uint32) error {
			c.headers(1+2*n, true, "x", "y")
			return nil
		},
		"more streams than allowed": func(c *client, n uint32) error {
			c.call(1+2*n, "later")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReadyClient(t)
			n := uint32(0)
			for ; n < 5000 && c.err == nil; n++ {
				c.must(frame(c, n))
				c.feed()
				c.out = c.out[:0]
			}
			c.wantError(CodeEnhanceYourCalm)
			if n < maxGlitches/4 || n > maxGlitches+2*uint32(testLimits.MaxStreams) {
				t.Errorf("the connection ended after %d frames, want about %d", n, maxGlitches)
			}
		})
	}
}

// TestHeaderBlockTooLarge sends a header block that never ends.
func TestHeaderBlockTooLarge(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
	n := 0
	for ; c.err == nil && n < 4*maxBlockBytes; n += maxFrameBytes {
		c.must(c.WriteContinuation(1, false, bytes.Repeat([]byte{0x90}, maxFrameBytes)))
		c.feed()
	}
	c.wantError(CodeEnhanceYourCalm)
	if n < maxBlockBytes || n > maxBlockBytes+2*maxFrameBytes || c.conn.Buffered() != 0 {
		t.Errorf("it ended after %d bytes, with %d buffered", n, c.conn.Buffered())
	}
}

func TestTimeRefillsBudget(t *testing.T) {
	c := newReadyClient(t)
	for range 3 * maxGlitches {
		c.must(c.WriteWindowUpdate(0, 1))
		c.now += time.Second / glitchesPerSecond * 101 / 100
		c.feed()
	}
	if c.err != nil {
		t.Error(c.err)
	}
}

// TestFreeRefusals checks that up to maxFreeRefusals refused streams are not glitches, until the
// client has acknowledged the SETTINGS, which limit the number of streams.
func TestFreeRefusals(t *testing.T) {
	c := newClient(t)
	c.must(c.WriteSettings())
	begin := func(id uint32) {
		c.headers(id, false, request(echoPath)...)
		c.feed()
		c.out = c.out[:0]
	}
	id := uint32(1)
	for ; id < 2*9000; id += 2 {
		begin(id)
	}
	c.must(c.WriteSettingsAck())
	for late := uint32(1); late < id; late += 2 { // sent before it received the refusals
		c.must(c.WriteData(late, true, grpcMessage("hello")))
		c.feed()
		c.out = c.out[:0]
	}
	if c.err != nil {
		t.Fatal(c.err)
	}
	aware := id
	for ; c.err == nil && id < aware+20_000; id += 2 {
		begin(id)
	}
	c.wantError(CodeEnhanceYourCalm)
	if n := (id - aware) / 2; n > maxGlitches+100+1 { // the first 100 were answered
		t.Errorf("%d streams were refused after the client knew how many it may open", n)
	}

	c = newClient(t) // this one never acknowledges
	c.must(c.WriteSettings())
	for id = 1; c.err == nil && id < 100_000; id += 2 {
		begin(id)
	}
	c.wantError(CodeEnhanceYourCalm)
	if n := id / 2; n < maxFreeRefusals || n > maxFreeRefusals+2*maxGlitches {
		t.Errorf("the connection ended after %d streams, want %d and a little more", n, maxFreeRefusals)
	}
}

func TestTooManyPings(t *testing.T) {
	c := newReadyClient(t, func(o *Options) { o.Limits.PingInterval = 10 * time.Second })
	ping := func(n int) {
		for range n {
			c.must(c.WritePing(false, [8]byte{7}))
			c.want(`PING "\a\x00\x00\x00\x00\x00\x00\x00" ACK`)
		}
	}
	ping(3)
	c.now += 10 * time.Second
	ping(1)
	c.call(1, "hello")
	c.want(answer(1, "hello")...)
	ping(3) // the first after an answer does not count
	c.must(c.WritePing(false, [8]byte{}))
	c.wantError(CodeEnhanceYourCalm)
	if c.err.Error() != "http2: too_many_pings (error code 11)" {
		t.Error(c.err)
	}
}

// TestCostOfSettings counts the SETTINGS frames that a connection accepts: each setting counts, and
// a change of the initial window counts more if it changes the windows of many streams.
func TestCostOfSettings(t *testing.T) {
	window := func(v uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: v} }
	many := func(n uint32) (settings []http2.Setting) {
		for i := range uint32(maxSettings) {
			settings = append(settings, window(1000+n+i))
		}
		return settings
	}
	for _, tt := range []struct {
		name      string
		streams   uint32
		settings  func(n uint32) []http2.Setting
		maxFrames uint32
	}{
		{"none", 1000, func(uint32) []http2.Setting { return nil }, maxGlitches},
		{"one, no streams", 0, func(n uint32) []http2.Setting { return []http2.Setting{window(n)} }, maxGlitches},
		{"the same again, many streams", 1000, func(uint32) []http2.Setting { return []http2.Setting{window(defaultWindow)} }, maxGlitches},
		{"one, many streams", 1000, func(n uint32) []http2.Setting { return []http2.Setting{window(n)} }, maxGlitches / 10},
		{"the maximum number", 0, many, maxGlitches / maxSettings},
		{"the maximum number, many streams", 1000, many, maxGlitches / (maxSettings + 10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newReadyClient(t, func(o *Options) { o.Limits.MaxStreams = 1024 })
			for i := range tt.streams {
				c.call(1+2*i, "later")
			}
			c.feed()
			n := uint32(0)
			for ; c.err == nil && n <= maxGlitches; n++ {
				c.must(c.WriteSettings(tt.settings(n)...))
				c.feed()
			}
			if n > tt.maxFrames+1 {
				t.Errorf("the connection accepts %d frames, want at most %d", n, tt.maxFrames+1)
			}
		})
	}
}
