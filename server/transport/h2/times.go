package h2

import "time"

// How long a stream may wait for its client.
const (
	mostRequestTime = 5 * time.Second  // for the end of a request
	mostReplyTime   = 10 * time.Second // for a window
)

// Overdue resets the streams whose clients have taken too long. A caller calls it once a second.
func (c *Conn) Overdue(out []byte, now time.Duration) []byte {
	c.out, c.now = out, now
	if c.drain.step == drainTold && now-c.drain.since >= drainPatience {
		c.endDrain()
	}
	if s := &c.newest; s.id != 0 && s.overdue(now) {
		c.reset(s, CodeCancel)
	}
	if len(c.streams) > 0 {
		for _, s := range c.sorted() {
			if s.overdue(now) {
				c.reset(s, CodeCancel)
			}
		}
	}
	out, c.out = c.out, nil
	return out
}

func (s *stream) overdue(now time.Duration) bool {
	switch {
	case s.talk != nil && !s.talk.finished:
		return s.timed && now >= s.deadline || s.talk.wants && len(s.body) > 0 && now-s.begun >= mostRequestTime
	case s.waiting != nil:
		return now-s.waits >= mostReplyTime
	case s.state != streamOpen:
		return false // it waits for us
	}
	return now-s.begun >= mostRequestTime || s.timed && now >= s.deadline
}
