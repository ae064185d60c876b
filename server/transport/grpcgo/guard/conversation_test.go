package guard

import (
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// TestMessagesThatWereReadAreForgotten has more streams than have a turn at once each send messages for very long.
func TestMessagesThatWereReadAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(Options{ParkedBytes: 1 << 20})
		c := converse(t, g)
		c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
		c.mustBeWell()
		var streams []uint32
		for stream := uint32(1); stream < 2*(2*turnsAtOnce+1); stream += 2 {
			streams = append(streams, stream)
			c.begin(stream)
			for range firstWindow / 200 {
				c.data(stream, false, 200)
				c.mustBeWell()
				c.conn.messageRead(stream, 200)
			}
		}
		c.wantUpdates("each gets the rest of its window once", streams...)
		for range 100 {
			for _, stream := range streams {
				c.data(stream, false, 16<<10)
				c.mustBeWell()
				c.conn.messageRead(stream, 16<<10)
			}
		}
		c.wantUpdates("no stream gets more")
		if held := g.parked.Load(); held != 0 || c.conn.parked.early != 0 {
			t.Errorf("%d bytes are held, %d of them early, want none", held, c.conn.parked.early)
		}
		c.large(1)
		c.wantUpdates("a large message takes its turn", 1)
		if n := len(c.conn.windows.open); n != 1 {
			t.Errorf("%d streams have their turn, want 1", n)
		}
		if c.conn.messageRead(1, 4<<10); c.conn.parked.bytes != 12<<10 {
			t.Errorf("%d bytes are held after a quarter was read, want the rest", c.conn.parked.bytes)
		}
		if n := len(c.conn.windows.open); n != 0 {
			t.Errorf("%d streams have their turn once the message was read, want none", n)
		}
	})
}
