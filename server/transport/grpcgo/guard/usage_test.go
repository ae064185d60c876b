package guard

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
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

// waiting are credentials whose connections wait before they close, as TLS does for its last alert.
type waiting struct{ plain }

func (waiting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return waitingConn{raw}, nil, nil
}

type waitingConn struct{ net.Conn }

func (waitingConn) Close() error { select {} }

// TestEndsWithoutWaiting has the listener and another connection end connections: neither may wait for the client.
func TestEndsWithoutWaiting(t *testing.T) {
	for name, end := range map[string]func(*conn){
		"for another": func(c *conn) { c.Retire(false) },
		"for memory":  func(c *conn) { c.end(errParked) },
	} {
		raw := &sink{}
		got, _, err := newGuard(Options{}).Credentials(waiting{}).ServerHandshake(raw)
		c, ok := got.(*conn)
		if err != nil || !ok {
			t.Fatalf("the connection is %T, %v", got, err)
		}
		if end(c); !raw.closed {
			t.Errorf("a connection that is ended %s is open", name)
		}
	}
}
