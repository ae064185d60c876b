package telemetry

import (
	"math"
	"time"

	"go.uber.org/zap"
)

// growthEnds is the time without growth after which a condition ends.
const growthEnds = time.Minute

// growth is a condition that lasts while a count grows.
type growth struct {
	code   Code
	read   func() uint64
	client *ClientError // nil unless the count is that of a ClientError
	was    uint64
	sum    uint64 // growth of the count since the condition started
	since  time.Time
	last   time.Time // time of the last growth; zero, like since, without a condition
	// marks are the counts at the ends of the last two intervals, the older one first.
	marks [2]uint64
}

// WhileGrows raises a condition while the count that read returns grows, and for a minute after
// that. The log gets a line at its start and at its end. [Conditions.Tick] must be called
// periodically.
func (c *Conditions) WhileGrows(code Code, read func() uint64) {
	c.addGrowth(&growth{code: code, read: read})
}

func (c *Conditions) addGrowth(g *growth) {
	c.growing.Lock()
	defer c.growing.Unlock()
	g.was = g.read()
	g.marks = [2]uint64{g.was, g.was}
	c.growths = append(c.growths, g)
}

// Tick starts and ends the conditions of [Conditions.WhileGrows] at the time now.
func (c *Conditions) Tick(now time.Time) {
	c.growing.Lock()
	defer c.growing.Unlock()
	intervalEnds := c.period.Advance(now)
	for _, g := range c.growths {
		wasActive := g.active(now)
		hadStarted := !g.since.IsZero()
		if g.tick(now); intervalEnds {
			g.marks = [2]uint64{g.marks[1], g.was}
		}
		d := g.code.Define()
		switch active := g.active(now); {
		case active && !wasActive && g.client == nil: // a ClientError logs itself
			c.logger.Log(d.Level, d.Sentence, zap.String("remedy", d.Remedy), Mark(g.code))
		case !active && hadStarted:
			c.logger.Info("not seen for a minute: "+d.Sentence, zap.Uint64("count", g.sum),
				zap.Inline(&transition{act: actEnded, codes: []Code{g.code}}))
		}
	}
}

func (g *growth) tick(now time.Time) {
	n := g.read()
	if now.Before(g.last) { // the clock was set back
		g.last = now
		if now.Before(g.since) {
			g.since = now
		}
	}
	if grown := n - min(n, g.was); grown > 0 {
		if g.since.IsZero() {
			g.since = now
			g.sum = 0
		}
		g.sum += min(grown, math.MaxInt64-g.sum)
		g.last = now
	} else if now.Sub(g.last) > growthEnds {
		g.since = time.Time{}
	}
	g.was = n
}

func (g *growth) active(now time.Time) bool {
	return !g.since.IsZero() && now.Sub(g.last) <= growthEnds
}

// condition returns the condition. Its rate is rounded to a tenth, and covers a period of the given
// length.
func (g *growth) condition(seconds float64) Condition {
	c := NewCondition(g.code, g.since)
	grown := g.was - min(g.was, g.marks[0])
	c.Fields = map[string]any{"count": g.sum, "per_second": math.Round(10*float64(grown)/seconds) / 10}
	if g.client != nil {
		g.client.describe(c.Fields)
	}
	return c
}
