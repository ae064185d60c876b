package guard

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
)

// TestTheWorstConnectionIsClosed has several connections hold requests without an
// end. What they hold together is bounded, and who holds little goes on.
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
	if ended, held := testutil.ToFloat64(g.options.Ended), g.parked.Load(); ended != 1 || held != 0 {
		t.Errorf("%v connections were closed and %d bytes are held, want 1 and 0", ended, held)
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
		closed = int(testutil.ToFloat64(g.options.Ended))
	}
	// Each may take 640 KiB: 80 bytes for each 32 of the list.
	if want := 100 - 8*1024/640; closed != want {
		t.Errorf("%d connections were closed, want %d", closed, want)
	}
	c := converse(t, newGuard(Options{HeaderListBytes: list}))
	c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{1}}))
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
