package h2

import (
	"testing"

	"golang.org/x/net/http2"
)

// checkCounts fails the test if a number that the connection keeps is not that of what it holds: memory
// that is counted and not held has honest clients refused, and closed in place of others. What is held and
// not counted has no bound.
func (c *Conn) checkCounts(t *testing.T) {
	t.Helper()
	parked, unfinished, waitingBytes, turns := cap(c.block.partialField), 0, 0, 0
	waitTurn, waitReply := map[*stream]bool{}, map[*stream]bool{}
	for id, s := range c.streams {
		if s.id != id || s.state != streamOpen && s.state != streamWorking {
			t.Fatalf("stream %d is kept as %d, in state %d", s.id, id, s.state)
		}
		parked += cap(s.body)
		unfinished += len(s.body)
		if s.kept != nil {
			parked += s.kept.bytes
		}
		switch s.slot {
		case slotNone:
		case slotAcquired:
			turns++
		case slotWaiting:
			waitTurn[s] = true
		}
		if s.unsent != nil {
			waitReply[s] = true
			waitingBytes += cap(s.unsent)
			if s.streaming != nil {
				waitingBytes += cap(s.streaming.trailers)
			}
		}
	}
	if s := &c.newest; s.body != nil || s.unsent != nil || s.pending != nil || s.streaming != nil || s.slot != slotNone {
		t.Fatalf("the newest stream has more than headers: %+v", s)
	}
	if c.receive.buffered != parked || c.block.counted != cap(c.block.partialField) {
		t.Fatalf("%d bytes of requests are counted and %d held", c.receive.buffered, parked)
	}
	if c.receive.bodyBytes != unfinished {
		t.Fatalf("%d bytes of DATA are counted and %d buffered", c.receive.bodyBytes, unfinished)
	}
	if c.send.queuedBytes != waitingBytes {
		t.Fatalf("%d bytes of replies are counted and %d held", c.send.queuedBytes, waitingBytes)
	}
	if c.receive.usedSlots != turns || turns > maxSlots {
		t.Fatalf("%d turns are counted and %d taken", c.receive.usedSlots, turns)
	}
	sameStreams(t, "turns", c.receive.slotQueue, waitTurn)
	sameStreams(t, "windows", c.send.queue, waitReply)
	if c.OpenStreams() < len(c.streams) || c.peakStreams < len(c.streams) {
		t.Fatalf("%d streams are counted as %d open, at most %d", len(c.streams), c.OpenStreams(), c.peakStreams)
	}
}

// sameStreams fails the test if a list has not each of the streams once.
func sameStreams(t *testing.T, of string, list []*stream, all map[*stream]bool) {
	t.Helper()
	if len(list) != len(all) {
		t.Fatalf("%d streams wait for %s, and the list has %d", len(all), of, len(list))
	}
	seen := map[*stream]bool{}
	for _, s := range list {
		if !all[s] || seen[s] {
			t.Fatalf("the list of those that wait for %s has stream %d, which does not, or twice: %v", of, s.id, seen[s])
		}
		seen[s] = true
	}
}

// TestNoGRPCIsAnsweredOnce has a request that is no gRPC go on after its answer, which has no window.
func TestNoGRPCIsAnsweredOnce(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"DATA":     func(c *client) { c.must(c.WriteData(1, true, []byte("x"))) },
		"trailers": func(c *client) { c.headers(1, true, "x", "y") },
		"nothing":  func(*client) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := begun(t)
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			c.want("SETTINGS ACK")
			c.headers(1, false, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "test")
			for range 40 {
				c.must(c.WriteData(1, false, make([]byte, smallFrame)))
			}
			c.want("HEADERS 1 :status=415 content-type=text/plain")
			end(c)
			c.want()
			c.conn.checkCounts(t)
			c.must(c.WriteWindowUpdate(1, 1000))
			want := []string{`DATA 1 "sluice speaks gRPC: the content type must be application/grpc\n" END`}
			if name == "nothing" {
				want = append(want, "RST_STREAM 1 NO_ERROR")
			}
			c.want(want...)
			if c.conn.OpenStreams() != 0 || c.conn.Buffered() != 0 {
				t.Errorf("%d streams are open in the end, and %d bytes parked", c.conn.OpenStreams(), c.conn.Buffered())
			}
		})
	}
}

// TestTrailersAfterTheEnd has the server end a stream between the frames of its trailers.
func TestTrailersAfterTheEnd(t *testing.T) {
	for name, ends := range map[string]func(c *client){
		"the request is overdue":   func(c *client) { c.out = c.conn.ResetOverdue(c.out, c.now+maxRequestTime) },
		"the conversation is over": func(c *client) { c.out = c.conn.Finish(c.out, 1, Status{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c := begun(t)
			c.talk(1)
			c.must(c.WriteData(1, false, grpcMessage("part")[:6]))
			block := c.encode("x", "y")
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: block[:1]}))
			c.feed()
			ends(c)
			if c.conn.OpenStreams() != 0 {
				t.Fatal("the stream is open")
			}
			c.out = c.out[:0]
			c.must(c.WriteContinuation(1, true, block[1:]))
			c.want()
			c.call(3, "hello")
			c.want(answer(3, "hello")...)
			c.conn.checkCounts(t)
		})
	}
}

// inflates has all messages decompressed to so many bytes.
type inflates struct {
	*echo
	to int
}

func (i inflates) Call(c *Call) ([]byte, Status, PendingCall) {
	c.DecompressedBytes = uint32(i.to)
	return i.echo.Call(c)
}

// TestInflatedBytesEndAFeed has bytes that messages were decompressed to count as if they had been sent.
func TestInflatedBytesEndAFeed(t *testing.T) {
	for to, want := range map[int]int{0: 100, (2*maxBatchOutput)/10 + 1: 10, (2 * maxBatchOutput): 1, 4 << 20: 1} {
		c := begun(t)
		c.conn.handler = inflates{c.handler, to}
		for id := range uint32(100) {
			c.call(2*id+1, "x")
		}
		in := c.in.Bytes()
		for answered := 0; answered < 100; answered += want {
			_, used, more, err := c.conn.Feed(nil, in, c.now)
			if got := len(c.handler.messages); got != answered+want || err != nil || more != (got < 100) {
				t.Fatalf("%d bytes a message: %d are answered, want %d; more %v, %v", to, got, answered+want, more, err)
			}
			in = in[used:]
		}
	}
}

// TestMethodsHaveBoundsOfTheirOwn has a message of the bound of its method, and the beginning of one beyond.
func TestMethodsHaveBoundsOfTheirOwn(t *testing.T) {
	for _, path := range []string{echoPath, talkPath} {
		c := begun(t, func(o *Options) {
			for i := range o.Methods {
				o.Methods[i].MaxMessageBytes = 100
			}
		})
		c.headers(1, false, request(path)...)
		c.must(c.WriteData(1, true, grpcMessage(string(make([]byte, 100)))))
		c.headers(3, false, request(path)...)
		c.must(c.WriteData(3, false, grpcMessage(string(make([]byte, 101)))[:50]))
		c.feed()
		if len(c.handler.exceeded) != 1 || c.handler.exceeded[0] != LimitMessageBytes || c.conn.find(3) != nil && path == echoPath {
			t.Errorf("%s: these bounds were exceeded: %v, want one", path, c.handler.exceeded)
		}
		c.conn.checkCounts(t)
	}
}
