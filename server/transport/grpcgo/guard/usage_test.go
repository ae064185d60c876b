package guard

import (
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// TestNoFrameWithinHeaders has the server write trailers of several frames. No GOAWAY and no WINDOW_UPDATE may come between.
func TestNoFrameWithinHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, newGuard(Options{}))
		c.goes(c.server.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}))
		c.begin(1)
		c.begin(3)
		c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: make([]byte, 100)}))
		c.mustBeWell()
		c.conn.Retire(true)
		c.data(3, false, 16<<10)
		c.mustBeWell()
		synctest.Wait()
		c.goes(c.server.WriteContinuation(1, false, make([]byte, 100)))
		c.mustBeWell()
		synctest.Wait()
		c.goes(c.server.WriteContinuation(1, true, make([]byte, 100)))
		c.mustBeWell()
		synctest.Wait()

		var got []http2.FrameType
		r := http2.NewFramer(nil, &c.out.Buffer) // it rejects other frames within headers
		for c.out.Len() > 0 {
			f, err := r.ReadFrame()
			if err != nil {
				t.Fatalf("after %v: %v", got, err)
			}
			got = append(got, f.Header().Type)
		}
		for _, want := range []http2.FrameType{http2.FrameGoAway, http2.FrameWindowUpdate} {
			if !slices.Contains(got, want) {
				t.Errorf("the client gets %v, want a %v too", got, want)
			}
		}
	})
}
