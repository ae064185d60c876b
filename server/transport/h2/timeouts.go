package h2

import "time"

// Time limits of a stream's client.
const (
	maxRequestTime = 5 * time.Second  // for the end of a request
	maxReplyTime   = 10 * time.Second // for a window
)

// ResetOverdue resets the streams that have reached a time limit or their deadline, and continues a
// drain. It should be called once a second.
func (c *Conn) ResetOverdue(out []byte, now time.Duration) []byte {
	c.out, c.now = out, now
	if c.drain.step == drainNotified && now-c.drain.since >= drainPingTimeout {
		c.endDrain()
	}
	if s := &c.newest; s.id != 0 && s.overdue(now) {
		c.reset(s, CodeCancel)
	}
	if len(c.streams) > 0 {
		for _, s := range c.sortedStreams() {
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
	case s.streaming != nil && !s.streaming.finished:
		return s.timed && now >= s.deadline || s.streaming.wantsMessage && len(s.body) > 0 && now-s.requestStart >= maxRequestTime
	case s.unsent != nil:
		return now-s.unsentSince >= maxReplyTime
	case s.state != streamOpen:
		return false // the handler has not answered yet
	}
	return now-s.requestStart >= maxRequestTime || s.timed && now >= s.deadline
}
