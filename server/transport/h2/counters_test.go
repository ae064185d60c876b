package h2

import (
	"testing"

	"golang.org/x/net/http2"
)

// checkCounts compares the counters of a connection with its state. If memory is counted but not
// used, other clients are refused or disconnected. If it is used but not counted, it has no limit.
func (c *Conn) checkCounts(t *testing.T) {
	t.Helper()
	buffered, unfinished, waitingBytes, slots := cap(c.block.partialField), 0, 0, 0
	waitSlot, waitReply := map[*stream]bool{}, map[*stream]bool{}
	for id, s := range c.streams {
		if s.id != id || s.state != streamOpen && s.state != streamWorking {
			t.Fatalf("stream %d is kept as %d, in state %d", s.id, id, s.state)
		}
		buffered += cap(s.body)
		unfinished += len(s.body)
		if s.kept != nil {
			buffered += s.kept.bytes
		}
		switch s.slot {
		case slotNone:
		case slotAcquired:
			slots++
		case slotWaiting:
			waitSlot[s] = true
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
	if c.receive.buffered != buffered || c.block.counted != cap(c.block.partialField) {
		t.Fatalf("%d bytes of requests are counted, and %d are buffered", c.receive.buffered, buffered)
	}
	if c.receive.bodyBytes != unfinished {
		t.Fatalf("%d bytes of DATA are counted and %d buffered", c.receive.bodyBytes, unfinished)
	}
	if c.send.queuedBytes != waitingBytes {
		t.Fatalf("%d bytes of replies are counted, and %d are queued", c.send.queuedBytes, waitingBytes)
	}
	if c.receive.usedSlots != slots || slots > maxSlots {
		t.Fatalf("%d slots are counted, and %d are used", c.receive.usedSlots, slots)
	}
	sameStreams(t, "slots", c.receive.slotQueue, waitSlot)
	sameStreams(t, "windows", c.send.queue, waitReply)
	if c.OpenStreams() < len(c.streams) || c.peakStreams < len(c.streams) {
		t.Fatalf("%d streams are counted as %d open, at most %d", len(c.streams), c.OpenStreams(), c.peakStreams)
	}
}

// sameStreams checks that a list contains each of the streams once.
func sameStreams(t *testing.T, of string, list []*stream, all map[*stream]bool) {
	t.Helper()
	if len(list) != len(all) {
		t.Fatalf("%d streams wait for %s, and the list has %d", len(all), of, len(list))
	}
	seen := map[*stream]bool{}
	for _, s := range list {
		if !all[s] || seen[s] {
			t.Fatalf("the list of streams that wait for %s has stream %d, which does not wait or is repeated: %v", of, s.id, seen[s])
		}
		seen[s] = true
	}
}

// TestHTTPErrorIsSentOnce continues a request that is not gRPC after its answer, which waits for a
// window.
func TestHTTPErrorIsSentOnce(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"DATA":     func(c *client) { c.must(c.WriteData(1, true, []byte("x"))) },
		"trailers": func(c *client) { c.headers(1, true, "x", "y") },
		"nothing":  func(*client) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReadyClient(t)
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
				t.Errorf("%d streams are open in the end, and %d bytes buffered", c.conn.OpenStreams(), c.conn.Buffered())
			}
		})
	}
}

// TestTrailersAfterEnd has the server end a stream between the frames of its trailers.
func TestTrailersAfterEnd(t *testing.T) {
	for name, ends := range map[string]func(c *client){
		"the request is overdue": func(c *client) { c.out = c.conn.ResetOverdue(c.out, c.now+maxRequestTime) },
		"the call has finished":  func(c *client) { c.out = c.conn.Finish(c.out, 1, Status{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newReadyClient(t)
			c.openStreaming(1)
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

// TestMethodLimits sends a message of the maximum size of its method, and the beginning of a larger
// one.
func TestMethodLimits(t *testing.T) {
	for _, path := range []string{echoPath, talkPath} {
		c := newReadyClient(t, func(o *Options) {
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
