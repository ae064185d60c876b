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
	c.growths = append(c.growths, g)
}

// Tick starts and ends the conditions of [Conditions.WhileGrows] at the time now.
func (c *Conditions) Tick(now time.Time) {
	c.growing.Lock()
	defer c.growing.Unlock()
	for _, g := range c.growths {
		wasActive := g.active(now)
		hadStarted := !g.since.IsZero()
		g.tick(now)
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

func (g *growth) condition() Condition {
	c := NewCondition(g.code, g.since)
	c.Fields = map[string]any{"count": g.sum}
	if g.client != nil {
		g.client.describe(c.Fields)
	}
	return c
}
