package h2

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func TestDrain(t *testing.T) {
	for _, answered := range []bool{true, false} {
		c := newReadyClient(t)
		c.call(1, "later")
		c.out = c.conn.Drain(c.out, c.now, "max_age")
		c.out = c.conn.Drain(c.out, c.now, "max_age") // only the first call counts
		c.call(3, "was on its way")
		c.want(append([]string{"GOAWAY 2147483647 NO_ERROR max_age", `PING "sluice\x00\x01"`}, answer(3, "was on its way")...)...)
		if answered {
			c.must(c.WritePing(true, [8]byte([]byte(drainPing))))
		} else {
			c.out = c.conn.ResetOverdue(c.out, c.now+drainPingTimeout-time.Nanosecond)
			c.want()
			c.out = c.conn.ResetOverdue(c.out, c.now+drainPingTimeout)
		}
		c.want("GOAWAY 3 NO_ERROR max_age")
		c.call(5, "too late") // its headers are decoded nevertheless
		c.want()
		if c.conn.Drained() {
			t.Error("it has drained, though a call is open")
		}
		c.out = c.conn.Reply(c.out, 1, []byte("at last"))
		c.want(answer(1, "at last")...)
		if !c.conn.Drained() || len(c.handler.calls) != 2 {
			t.Errorf("drained: %v, with %d calls", c.conn.Drained(), len(c.handler.calls))
		}
	}
}

// TestLastStreamDoesNotIncrease closes a connection with an error after the last GOAWAY. A stream
// opened since then is not answered, so the number must not increase.
func TestLastStreamDoesNotIncrease(t *testing.T) {
	c := newReadyClient(t)
	c.call(1, "later")
	c.out = c.conn.Drain(c.out, c.now, "max_age")
	c.must(c.WritePing(true, [8]byte([]byte(drainPing))))
	c.want("GOAWAY 2147483647 NO_ERROR max_age", `PING "sluice\x00\x01"`, "GOAWAY 1 NO_ERROR max_age")
	c.call(3, "too late")
	c.want()
	c.must(c.WriteRawFrame(http2.FramePushPromise, 0, 1, nil))
	c.feed()
	c.out = c.conn.GoAway(c.out, c.err.(*ConnError)) //nolint:errorlint // nothing else is returned
	if got := c.frames(); len(got) != 1 || !strings.HasPrefix(got[0], "GOAWAY 1 ") {
		t.Errorf("the client gets %q, want a GOAWAY of stream 1", got)
	}
}

// TestStreamNumbersRunOut uses three quarters of the stream numbers: the connection drains, while
// the client has some left.
func TestStreamNumbersRunOut(t *testing.T) {
	c := newReadyClient(t)
	c.call(maxStreamNumber-1, "hello")
	c.want(answer(maxStreamNumber-1, "hello")...)
	c.call(maxStreamNumber+1, "hello")
	c.want(append([]string{"GOAWAY 2147483647 NO_ERROR stream numbers run out", `PING "sluice\x00\x01"`}, answer(maxStreamNumber+1, "hello")...)...)
	c.call(maxStreamNumber+3, "hello")
	c.want(answer(maxStreamNumber+3, "hello")...)
	c.must(c.WritePing(true, [8]byte([]byte(drainPing))))
	c.want(fmt.Sprintf("GOAWAY %d NO_ERROR stream numbers run out", maxStreamNumber+3))
	if !c.conn.Draining() || !c.conn.Drained() {
		t.Errorf("draining: %v, drained: %v", c.conn.Draining(), c.conn.Drained())
	}
}
