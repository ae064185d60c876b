package guard

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// updates returns the streams whose WINDOW_UPDATE frames reached the client since it
// was last called, once all that was to be sent has been.
func (c *conversation) updates() []uint32 {
	c.t.Helper()
	synctest.Wait()
	var streams []uint32
	r := http2.NewFramer(nil, &c.out.Buffer)
	for {
		f, err := r.ReadFrame()
		if errors.Is(err, io.EOF) {
			return streams
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if u, ok := f.(*http2.WindowUpdateFrame); ok {
			streams = append(streams, u.StreamID)
		}
	}
}

// large has the client begin a message that is larger than its window, and the
// server widen that.
func (c *conversation) large(stream uint32) {
	c.begin(stream)
	c.data(stream, false, 16<<10)
	c.mustBeWell()
	c.goes(c.server.WriteWindowUpdate(stream, 1<<20))
	c.mustBeWell()
}

func (c *conversation) wantUpdates(what string, want ...uint32) {
	c.t.Helper()
	if got := c.updates(); !slices.Equal(got, want) {
		c.t.Errorf("%s: updates of streams %v, want %v", what, got, want)
	}
}

func TestLargeMessagesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{}))
		for stream := uint32(1); stream <= 19; stream += 2 {
			c.large(stream)
		}
		c.wantUpdates("ten begin", 1, 3, 5, 7)
		c.goes(c.server.WriteWindowUpdate(0, 1<<20))
		c.goes(c.server.WriteWindowUpdate(17, 20<<10))
		c.goes(c.server.WriteWindowUpdate(3, 1<<20))
		c.mustBeWell()
		c.wantUpdates("of the connection, small, and of one whose turn it is", 0, 17, 3)
		c.data(3, true, 100)
		c.mustBeWell()
		c.wantUpdates("one is whole", 9)
		c.goes(c.client.WriteRSTStream(11, http2.ErrCodeCancel))
		c.goes(c.client.WriteRSTStream(5, http2.ErrCodeCancel))
		c.mustBeWell()
		c.wantUpdates("one that waits and one whose turn it is are reset", 13)
		c.answer(1)
		c.goes(c.server.WriteRSTStream(7, http2.ErrCodeCancel))
		c.mustBeWell()
		c.wantUpdates("the server ends two", 15, 17)
		c.goes(c.server.WriteWindowUpdate(5, 1<<20))
		c.mustBeWell()
		c.wantUpdates("of a stream that has ended", 5)
		c.data(9, true, 0)
		c.data(13, true, 0)
		c.mustBeWell()
		c.wantUpdates("the last", 19)
		if w := &c.conn.windows; len(w.waiting) != 0 || len(w.open) != 3 {
			t.Errorf("%d wait and %d are open, want 0 and 3", len(w.waiting), len(w.open))
		}
	})
}

// TestUpdatesInPieces has the server write its frames in pieces of any size. All but
// those that wait must come through as they are, in their order.
func TestUpdatesInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(7, 8))
		c := converse(t, newGuard(Options{}))
		const calls = 300
		for i := range uint32(calls) {
			c.begin(1 + 2*i)
			c.data(1+2*i, false, 16<<10)
		}
		c.mustBeWell()
		for i := range uint32(calls) {
			c.goes(c.server.WriteWindowUpdate(1+2*i, 1<<20))
			c.goes(c.server.WriteData(1+2*i, false, make([]byte, rnd.IntN(50))))
			c.goes(c.server.WriteWindowUpdate(0, 1<<20))
		}
		for all := c.server.take(); len(all) > 0; {
			n := min(len(all), 1+rnd.IntN(200))
			if _, err := c.conn.Write(all[:n]); err != nil {
				t.Fatal(err)
			}
			all = all[n:]
		}
		seen := map[uint32]int{}
		for {
			got := c.updates()
			for _, stream := range got {
				seen[stream]++
			}
			if len(got) == 0 {
				break
			}
			for _, stream := range got {
				if stream != 0 {
					c.data(stream, true, 0)
				}
			}
			c.mustBeWell()
		}
		if seen[0] != calls || len(seen) != calls+1 {
			t.Errorf("%d updates of the connection and of %d streams came, want %d of each", seen[0], len(seen)-1, calls)
		}
	})
}

// TestFirstWindowIsMadeUpFor has the server allow 64 KiB. The client is told less, and
// gets the rest when a request of its needs it, once.
func TestFirstWindowIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{}))
		c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 5}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
		c.goes(c.server.WriteWindowUpdate(0, 1<<20))
		c.goes(c.server.WriteSettingsAck())
		c.mustBeWell()
		synctest.Wait()
		r := http2.NewFramer(nil, &c.out.Buffer)
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		told, ok := f.(*http2.SettingsFrame)
		if !ok {
			t.Fatalf("the server begins with %v", f)
		}
		window, _ := told.Value(http2.SettingInitialWindowSize)
		if streams, _ := told.Value(http2.SettingMaxConcurrentStreams); streams != 5 || window != firstWindow {
			t.Errorf("the client is told %v", told)
		}
		c.wantUpdates("the connection's", 0)

		c.begin(1)
		c.data(1, true, firstWindow)
		c.begin(3)
		c.data(3, false, 200)
		c.data(3, true, 200)
		c.mustBeWell()
		c.wantUpdates("requests that fit")

		c.begin(5)
		for range firstWindow / 1024 {
			c.data(5, false, 1024)
			c.mustBeWell()
		}
		synctest.Wait()
		f, err = r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := f.(*http2.WindowUpdateFrame); !ok || u.StreamID != 5 || u.Increment+window != 64<<10 {
			t.Errorf("a request that does not fit gets %v, want an update to 64 KiB in all", f)
		}
		c.wantUpdates("no more than once")

		c.begin(7)
		for range firstWindow/2/256 - 1 {
			c.data(7, false, 256)
		}
		c.mustBeWell()
		c.wantUpdates("less than half a window in small frames")
		c.data(7, false, 256)
		c.mustBeWell()
		c.wantUpdates("half a window in small frames", 7)
		c.goes(c.server.WriteWindowUpdate(5, 1<<20))
		c.mustBeWell()
		c.wantUpdates("it is larger than the server's first window, too", 5)
	})
}

// TestFirstWindowsAreHeldTo has a client go on as if it had not been told of a smaller
// window.
func TestFirstWindowsAreHeldTo(t *testing.T) {
	const streams, frame = 100, 16 << 10
	early := func(t *testing.T, c *conversation) int {
		t.Helper()
		for i := range uint32(streams) {
			c.begin(1 + 2*i)
			c.data(1+2*i, false, firstWindow)
		}
		c.mustBeWell()
		synctest.Wait() // some have their turn
		n := 0
		for ; n < streams-turnsAtOnce; n++ {
			c.data(1+2*uint32(turnsAtOnce+n), false, frame)
			if !c.well() {
				break
			}
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{MaxStreams: streams}))
		c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
		n := early(t, c)
		const allowed, held = 2 * (streams*4096 + 64<<10), (streams - turnsAtOnce) * 4096
		if want := (allowed - held) / frame; n != want || !errors.Is(c.conn.ended, errWindow) {
			t.Errorf("closed after %d frames, want %d: %v", n, want, c.conn.ended)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{MaxStreams: streams}))
		if n := early(t, c); n != streams-turnsAtOnce {
			t.Errorf("closed after %d frames, though no window was narrowed: %v", n, c.conn.ended)
		}
	})
}

// TestNothingMixesWithAFrame has a turn begin while the server is in the middle of a frame.
func TestNothingMixesWithAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{}))
		for stream := uint32(1); stream <= 9; stream += 2 {
			c.large(stream)
		}
		c.wantUpdates("five begin", 1, 3, 5, 7)
		c.goes(c.server.WriteData(3, false, make([]byte, 100)))
		frame := slices.Clone(c.server.take())
		for _, cut := range []int{headerBytes - 1, headerBytes, 50} {
			if _, err := c.conn.Write(frame[:cut]); err != nil {
				t.Fatal(err)
			}
			for stream := range c.conn.windows.open {
				c.data(stream, true, 0)
				break
			}
			c.mustBeWell()
			synctest.Wait()
			if n := c.out.Len(); n != cut {
				t.Errorf("%d bytes are written after %d of a frame", n, cut)
			}
			if _, err := c.conn.Write(frame[cut:]); err != nil {
				t.Fatal(err)
			}
			if got := c.updates(); len(got) != 1 {
				t.Errorf("updates of streams %v after the frame, want one", got)
			}
			next := uint32(11 + 2*cut)
			c.large(next)
		}
	})
}

// TestSettingsInPieces has the server write its SETTINGS in two pieces, which grpc-go never does.
// They come through as they are.
func TestSettingsInPieces(t *testing.T) {
	c := converse(t, newGuard(Options{}))
	c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
	all := slices.Clone(c.server.take())
	for _, piece := range [][]byte{all[:headerBytes+2], all[headerBytes+2:]} {
		if _, err := c.conn.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(c.out.Bytes(), all) || c.conn.windows.missing != 0 {
		t.Errorf("%x became %x, and %d are missing", all, c.out.Bytes(), c.conn.windows.missing)
	}
}

// TestOneReleaseAtATime has a server that cannot write, as with a client that does not read.
func TestOneReleaseAtATime(t *testing.T) {
	c := converse(t, newGuard(Options{}))
	c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
	c.mustBeWell()
	c.begin(1)
	c.data(1, false, firstWindow)
	before := runtime.NumGoroutine()
	c.conn.writing.Lock()
	for range 100 {
		c.goes(c.client.WritePing(false, [8]byte{}))
		if err := c.conn.received(c.client.take(), time.Now); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines wait to write, want 1", n)
	}
	c.conn.writing.Unlock()
	for releasing := true; releasing; runtime.Gosched() {
		c.conn.mu.Lock()
		releasing = c.conn.releasing
		c.conn.mu.Unlock()
	}
}

// TestUpdatesOfAWaitingStreamAreOne holds that a stream gets its turn once, for all
// that it asked for.
func TestUpdatesOfAWaitingStreamAreOne(t *testing.T) {
	var w windows
	for stream := uint32(1); stream < 20; stream += 2 {
		w.ask(stream, 1)
		w.ask(stream, 10)
	}
	b := w.appendReady(nil, func(uint32) bool { return true })
	if len(b) != turnsAtOnce*(headerBytes+codeBytes) || b[headerBytes+codeBytes-1] != 11 || len(w.waiting) != 10-turnsAtOnce {
		t.Errorf("updates %x, and %v wait", b, w.waiting)
	}
}

func TestNarrowFirstWindow(t *testing.T) {
	for _, tt := range []struct {
		was, want, missing uint32
	}{{64 << 10, firstWindow, 60 << 10}, {firstWindow + 1, firstWindow, 1}, {firstWindow, firstWindow, 0}, {100, 100, 0}} {
		payload := []byte{0, 3, 0, 0, 0, 9, 0, 4}
		payload = binary.BigEndian.AppendUint32(payload, tt.was)
		missing := narrowFirstWindow(payload)
		if got := binary.BigEndian.Uint32(payload[8:]); got != tt.want || missing != tt.missing {
			t.Errorf("a window of %d becomes %d and %d are missing, want %d and %d", tt.was, got, missing, tt.want, tt.missing)
		}
	}
	if missing := narrowFirstWindow([]byte{0, 3, 0, 0, 0, 9}); missing != 0 {
		t.Errorf("%d are missing without the setting", missing)
	}
}
