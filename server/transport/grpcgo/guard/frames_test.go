package guard

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
)

// TestFramesInPieces finds frames however the bytes come.
func TestFramesInPieces(t *testing.T) {
	type frame struct {
		Kind   byte
		End    bool
		Stream uint32
		Length int
		Code   uint32
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	w := newWire()
	var want []frame
	for range 2000 {
		flags := byte(rnd.Uint32())
		f := frame{Kind: byte(rnd.IntN(12)), End: flags&flagEndStream != 0, Stream: rnd.Uint32() >> 1, Length: rnd.IntN(40)}
		payload := make([]byte, f.Length)
		if f.Kind == frameRSTStream || f.Kind == frameWindowUpdate {
			f.Length, f.Code = codeBytes, rnd.Uint32()
			payload = binary.BigEndian.AppendUint32(nil, f.Code)
		}
		if err := w.WriteRawFrame(http2.FrameType(f.Kind), http2.Flags(flags), f.Stream, payload); err != nil {
			t.Fatal(err)
		}
		want = append(want, f)
	}
	var (
		got []frame
		fs  frames
	)
	for all := w.Bytes(); len(all) > 0; {
		n := min(len(all), 1+rnd.IntN(60))
		for rest, ok := fs.next(all[:n]); ok; rest, ok = fs.next(rest) {
			f := frame{fs.kind(), fs.has(flagEndStream), fs.stream(), fs.length(), 0}
			if f.Kind == frameRSTStream || f.Kind == frameWindowUpdate {
				f.Code = fs.code()
			}
			got = append(got, f)
		}
		all = all[n:]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames: -want +got:\n%s", diff)
	}
	if !fs.between() {
		t.Error("the last frame has not ended")
	}
}

// TestStreamsAgreeWithAMap compares what is remembered of streams with all of it.
func TestStreamsAgreeWithAMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var (
		s      streams
		newest = uint32(1)
		begun  = map[uint32]bool{1: true}
	)
	s.begin(1)
	for range 200_000 {
		switch id := newest - min(newest-1, 2*rnd.Uint32N(2*remembered)); rnd.IntN(4) {
		case 0:
			newest += 2 * (1 + rnd.Uint32N(3))
			if rnd.IntN(5000) == 0 {
				newest += 2 * 2 * remembered
			}
			if !s.begin(newest) || s.begin(newest) {
				t.Fatalf("stream %d is new once", newest)
			}
			begun[newest] = true
		case 1:
			s.end(id)
			if s.begun-id>>1 <= remembered {
				delete(begun, id)
			}
		default:
			want := begun[id] || s.begun-id>>1 > remembered
			if got := s.on(id); got != want {
				t.Fatalf("stream %d of %d is on: %v, want %v", id, newest, got, want)
			}
		}
	}
}

// chunks is a connection from which each read gets one of them.
type chunks struct {
	net.Conn
	left [][]byte
}

func (c *chunks) Read(p []byte) (int, error) {
	n := copy(p, c.left[0])
	c.left = c.left[1:]
	return n, nil
}

// TestResetsMakeTheReaderYield has one processor, so that what is ready to run runs
// only if the reader lets it.
func TestResetsMakeTheReaderYield(t *testing.T) {
	for _, tt := range []struct {
		resets int
		want   bool
	}{{0, false}, {manyResets - 1, false}, {manyResets, true}, {200, true}} {
		c := converse(t, newGuard(Options{}))
		for i := range uint32(tt.resets) {
			c.begin(2*i + 1)
			c.goes(c.client.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
		next := newWire()
		c.goes(next.WritePing(false, [8]byte{}))
		c.conn.Conn = &chunks{left: [][]byte{c.client.take(), next.take()}}
		p := make([]byte, 64<<10)
		if _, err := c.conn.Read(p); err != nil {
			t.Fatal(err)
		}
		if c.conn.hasty != tt.want {
			t.Errorf("%d resets: hasty is %v, want %v", tt.resets, c.conn.hasty, tt.want)
		}
		processors := runtime.GOMAXPROCS(1)
		ran := make(chan struct{})
		go close(ran)
		_, err := c.conn.Read(p)
		select {
		case <-ran:
		default:
			if tt.want {
				t.Errorf("%d resets: the reader went on while others were ready to run", tt.resets)
			}
		}
		runtime.GOMAXPROCS(processors)
		if err != nil || c.conn.hasty {
			t.Errorf("%d resets, then none: %v, hasty is %v", tt.resets, err, c.conn.hasty)
		}
	}
}
