package guard

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

// TestTheWorstConnectionIsClosed has several connections hold requests without an
// end. What they hold together is bounded, and one that holds little goes on.
func TestTheWorstConnectionIsClosed(t *testing.T) {
	const bound = 1 << 20
	g := newGuard(Options{ParkedBytes: bound})
	modest, greedy := converse(t, g), converse(t, g)
	modest.begin(1)
	modest.data(1, false, 16<<10)
	modest.mustBeWell()
	n := 0
	for ; n < 1000; n++ {
		greedy.begin(uint32(1 + 2*n))
		greedy.data(uint32(1+2*n), false, 16<<10)
		if !greedy.well() || greedy.out.closed {
			break
		}
		if g.parked.Load() > bound {
			t.Fatalf("%d bytes are held, want at most %d", g.parked.Load(), bound)
		}
	}
	if want := bound/(16<<10) - 1; n != want {
		t.Errorf("the greedy connection was closed at request %d, want %d", n, want)
	}
	if !errors.Is(greedy.conn.ended, errParked) || greedy.well() {
		t.Errorf("the greedy connection goes on: %v", greedy.conn.ended)
	}
	modest.data(1, true, 100)
	modest.mustBeWell()
	if ended, held := testutil.ToFloat64(g.options.Memory), g.parked.Load(); ended != 1 || held != 0 {
		t.Errorf("%v connections were closed and %d bytes are held, want 1 and 0", ended, held)
	}
}

// TestReservedMemory has a part of the bound held for other purposes.
func TestReservedMemory(t *testing.T) {
	reserved := int64(0)
	g := newGuard(Options{ParkedBytes: 64 << 10, Reserved: func() int64 { return reserved }})
	c := converse(t, g)
	c.begin(1)
	c.data(1, false, 16<<10)
	c.mustBeWell()
	reserved = 40 << 10
	c.begin(3)
	if c.data(3, false, 16<<10); c.well() && !c.out.closed {
		t.Error("the connection goes on")
	}
}

// TestUnfinishedHeadersAreCounted bounds the header blocks that many connections leave
// without an end, by what they may become when decoded.
func TestUnfinishedHeadersAreCounted(t *testing.T) {
	const list = 256 << 10
	g := newGuard(Options{ParkedBytes: 8 << 20, HeaderListBytes: list})
	closed := 0
	for range 100 {
		c := converse(t, g)
		c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10<<10)}))
		c.well()
		c.goes(c.client.WriteContinuation(1, false, make([]byte, 2000)))
		c.well()
		if held := g.parked.Load(); held > 8<<20 {
			t.Fatalf("%d bytes are held", held)
		}
		closed = int(testutil.ToFloat64(g.options.Memory))
	}
	// Each may take 640 KiB: 80 bytes for each 32 of the list.
	if want := 100 - 8*1024/640; closed != want {
		t.Errorf("%d connections were closed, want %d", closed, want)
	}
	c := converse(t, newGuard(Options{HeaderListBytes: list}))
	c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{1}}))
	c.goes(c.client.WriteContinuation(1, false, []byte{1, 1}))
	c.mustBeWell()
	if want := 3 * 80; c.conn.parked.bytes != want {
		t.Errorf("%d bytes are held by three indexes, want %d", c.conn.parked.bytes, want)
	}
	c.goes(c.client.WriteContinuation(1, true, []byte{1}))
	c.mustBeWell()
	if c.conn.parked.bytes != 0 {
		t.Errorf("%d bytes are held by headers that have ended", c.conn.parked.bytes)
	}
}

// TestNothingStaysCounted plays calls of every kind on several connections at random,
// then ends all of them: nothing must be left, or honest clients would be closed
// after a day.
func TestNothingStaysCounted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	g := newGuard(Options{ParkedBytes: 1 << 40})
	for range 20 {
		c := converse(t, g)
		next, open := uint32(1), map[uint32]bool{}
		pick := func() (uint32, bool) {
			for id := range open {
				return id, true
			}
			return 0, false
		}
		for range 5000 {
			id, some := pick()
			switch kind := rnd.IntN(7); {
			case kind == 0 || !some:
				c.begin(next)
				open[next] = true
				next += 2
				continue
			case kind < 4:
				c.data(id, false, rnd.IntN(16<<10))
			case kind == 4:
				c.data(id, true, rnd.IntN(16<<10))
				delete(open, id)
			case kind == 5:
				c.goes(c.client.WriteRSTStream(id, http2.ErrCodeCancel))
				delete(open, id)
			default:
				c.mustBeWell()
				c.answer(id)
				c.mustBeWell()
				c.data(id, false, rnd.IntN(16<<10)) // was on its way
				delete(open, id)
			}
			c.conn.odd.left = oddActsAtOnce
			c.mustBeWell()
		}
		if rnd.IntN(2) == 0 {
			if err := c.conn.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for id := range open {
			c.data(id, true, 0)
		}
		c.mustBeWell()
		if c.conn.parked.bytes != 0 || c.conn.parked.early != 0 || len(c.conn.parked.data) != 0 {
			t.Fatalf("%d bytes of %d streams are held in the end", c.conn.parked.bytes, len(c.conn.parked.data))
		}
	}
	if held := g.parked.Load(); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}

// TestOnlyEndsEnd sends, on a stream whose request is on its way, what does not end it.
func TestOnlyEndsEnd(t *testing.T) {
	g := newGuard(Options{})
	c := converse(t, g)
	c.begin(1)
	c.data(1, false, 16<<10)
	for kind := range http2.FrameType(12) {
		if kind != frameData && kind != frameHeaders && kind != frameRSTStream {
			c.goes(c.client.WriteRawFrame(kind, flagEndStream, 1, make([]byte, codeBytes)))
		}
	}
	c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{1}}))
	c.mustBeWell()
	if r := c.conn.parked.data[1]; r.bytes != 16<<10 || c.conn.ends != 0 {
		t.Errorf("%d bytes are held and %d streams have ended, want all and none", r.bytes, c.conn.ends)
	}
	c.goes(c.client.WriteRawFrame(http2.FrameRSTStream, flagEndStream, 1, make([]byte, codeBytes)))
	c.mustBeWell()
	if held := g.parked.Load(); held > 1<<10 || c.conn.ends != 0 || c.conn.resets != 1 {
		t.Errorf("%d bytes are held after a reset, %d streams have ended and %d were reset", held, c.conn.ends, c.conn.resets)
	}
}

// TestAnAnswerFreesMemory at once, not with the next that the client sends.
func TestAnAnswerFreesMemory(t *testing.T) {
	g := newGuard(Options{})
	c := converse(t, g)
	c.begin(1)
	c.data(1, false, 16<<10)
	c.mustBeWell()
	c.answer(1)
	if _, err := c.conn.Write(c.server.take()); err != nil {
		t.Fatal(err)
	}
	if held := g.parked.Load(); held != 0 {
		t.Errorf("%d bytes are held after the answer", held)
	}
}

// TestClosedConnectionsAreForgotten whatever is read after Close.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	g := newGuard(Options{})
	before, after := converse(t, g), converse(t, g)
	for _, c := range []*conversation{before, after} {
		c.begin(1)
		c.data(1, false, 16<<10)
	}
	before.mustBeWell()
	for _, c := range []*conversation{before, after} {
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after.well() {
		t.Error("a closed connection goes on")
	}
	if len(g.conns) != 0 || g.parked.Load() != 0 {
		t.Errorf("%d connections and %d bytes are kept", len(g.conns), g.parked.Load())
	}
}

// TestAConnectionEndsOnce for its first reason.
func TestAConnectionEndsOnce(t *testing.T) {
	g := newGuard(Options{})
	c := converse(t, g)
	c.conn.end(errParked)
	c.conn.end(errOddActs)
	if ended := testutil.ToFloat64(g.options.Memory); ended != 1 || !errors.Is(c.conn.ended, errParked) {
		t.Errorf("%v connections counted, because %v", ended, c.conn.ended)
	}
}

// TestTurnsAreNotEarly counts the bytes of streams before and after their turn.
func TestTurnsAreNotEarly(t *testing.T) {
	var p parked
	check := func(what string, bytes, early int) {
		t.Helper()
		if p.bytes != bytes || p.early != early {
			t.Errorf("%s: %d bytes, %d of them early, want %d and %d", what, p.bytes, p.early, bytes, early)
		}
	}
	p.addData(1, 4096)
	p.addData(3, 256)
	check("two begin", 4352, 4352)
	p.beginTurn(1)
	check("one has its turn", 4352, 256)
	p.beginTurn(1)
	p.beginTurn(5)
	check("no other has", 4352, 256)
	p.addData(1, 4096)
	check("it goes on", 8448, 256)
	p.endStream(1)
	check("it ends", 256, 256)
	p.endStream(3)
	check("both have ended", 0, 0)
}

// TestBufferBytes compares with the pool from which grpc-go takes its buffers.
func TestBufferBytes(t *testing.T) {
	pool := mem.DefaultBufferPool()
	for length := 1; length <= 16<<10; length++ {
		b := pool.Get(length)
		if got := bufferBytes(length); got != cap(*b) {
			t.Fatalf("a frame of %d bytes counts %d, its buffer has %d", length, got, cap(*b))
		}
		pool.Put(b)
	}
}

// TestNoMoreConnectionsAreClosedThanNeeded has two connections find at the same time that too
// much is held, while the worst one is still on its way out.
func TestNoMoreConnectionsAreClosedThanNeeded(t *testing.T) {
	g := newGuard(Options{ParkedBytes: 1 << 20})
	greedy, modest := converse(t, g), converse(t, g)
	for i, c := range []*conversation{modest, greedy, greedy} {
		c.begin(uint32(1 + 2*i))
		c.data(uint32(1+2*i), false, 16<<10)
		c.mustBeWell()
	}
	g.options.ParkedBytes = 40 << 10
	greedy.conn.mu.Lock()
	var sheds sync.WaitGroup
	for range 2 {
		sheds.Go(g.shed)
	}
	for range 1000 {
		runtime.Gosched()
	}
	greedy.conn.mu.Unlock()
	sheds.Wait()
	if greedy.conn.ended == nil || modest.conn.ended != nil {
		t.Errorf("the greedy connection: %v, the modest one: %v", greedy.conn.ended, modest.conn.ended)
	}
}
