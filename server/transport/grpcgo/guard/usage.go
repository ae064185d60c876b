package guard

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// usage is the use of a connection. conn.mu guards it.
type usage struct {
	calls streams // open calls, of the newest that are remembered
	since time.Duration
	used  bool
}

func (u *usage) begin(stream uint32, now time.Duration) {
	u.calls.begin(stream)
	u.since, u.used = now, true
}

func (u *usage) end(stream uint32, now time.Duration) {
	u.calls.end(stream)
	u.since = now
}

// busy reports whether a call is open.
func (u *usage) busy() bool {
	return u.calls.live != [remembered / 64]uint64{}
}

// Usage implements [transport.Served].
func (c *conn) Usage() transport.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return transport.Usage{Busy: c.usage.busy(), Used: c.usage.used, Since: c.usage.since}
}

// Retire implements [transport.Served].
func (c *conn) Retire(gently bool) {
	if gently {
		go c.sayGoodbye() // the client may not read
		return
	}
	c.closeRaw()
}

// sayGoodbye has the client begin no more calls.
func (c *conn) sayGoodbye() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.goodbye = true
	c.writeGoodbye()
}

// writeGoodbye writes a GOAWAY that is due, unless the server's SETTINGS have not left or one of its frames has begun:
// then the write that ends the frame does. c.writing is held.
func (c *conn) writeGoodbye() {
	c.mu.Lock()
	due := c.goodbye && c.windows.missing > 0 && c.out.between()
	c.mu.Unlock()
	if !due {
		return
	}
	c.goodbye = false
	frame := []byte{2: 2 * codeBytes, 3: frameGoAway, headerBytes - 1: 0}
	frame = binary.BigEndian.AppendUint32(frame, math.MaxInt32) // calls that have begun meanwhile are answered
	frame = binary.BigEndian.AppendUint32(frame, codeNo)
	_, _ = c.Conn.Write(frame) // grpc-go meets the same error
}
