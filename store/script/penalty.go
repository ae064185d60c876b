package script

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// The key of a penalty is the counter's name, without the start of a fixed window, and a y: it
// outlives the window. Its value is its step and when it is forgotten, in milliseconds since 1970.

// appendPenalty appends the arguments of a charge with a penalty: the key, the window, the number
// of steps, and the steps.
func (c *Call) appendPenalty(at *charge, p *limiter.Policy, name []byte) {
	start := len(c.buf)
	c.buf = append(append(c.buf, name...), 'y')
	at.penaltyKey, _ = c.keyIndex(c.tail(start)) // not the first: that is the counter
	at.companionArg = len(c.args)
	steps := p.Penalty.Steps()
	c.args = append(c.args, "", c.number(int64(p.Window/time.Second)), c.number(int64(len(steps))))
	for _, step := range steps {
		c.args = append(c.args, c.number(int64(step/time.Second)))
	}
}

// readPenalty reads the penalty of a counter.
func (r *reply) readPenalty(s *limiter.State) {
	level := r.next()
	forgotten := r.next()
	if level > 0 && forgotten > 0 {
		s.PenaltyLevel = uint8(min(level, limiter.MaxPenalties))
		s.PenaltyExpiry = limiter.Time(min(forgotten, math.MaxInt64/int64(time.Millisecond)) * int64(time.Millisecond))
	}
}
