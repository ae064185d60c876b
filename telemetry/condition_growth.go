package telemetry

import (
	"math"
	"time"

	"go.uber.org/zap"
)

// growthEnds is how long a count must not have grown until its condition has ended.
const growthEnds = time.Minute

// growth is a condition that lasts while a count grows.
type growth struct {
	code   Code
	read   func() uint64
	client *ClientError // whose count it is; nil for another count
	was    uint64
	sum    uint64 // by which the count has grown since the condition began
	since  time.Time
	last   time.Time // when the count has grown last; zero, as since, without a condition
}

// WhileGrows has a condition last while the count that read returns grows, and for a minute after that. The log gets a line
// when it begins and one when it ends. [Conditions.Tick] must be called again and again.
func (c *Conditions) WhileGrows(code Code, read func() uint64) {
	c.addGrowth(&growth{code: code, read: read, was: read()})
}

func (c *Conditions) addGrowth(g *growth) {
	c.growing.Lock()
	defer c.growing.Unlock()
	c.growths = append(c.growths, g)
}

// Tick begins and ends the conditions of [Conditions.WhileGrows] at the time now.
func (c *Conditions) Tick(now time.Time) {
	c.growing.Lock()
	defer c.growing.Unlock()
	for _, g := range c.growths {
		was := g.active(now)
		lasted := !g.since.IsZero()
		g.tick(now)
		d := g.code.Define()
		switch is := g.active(now); {
		case is && !was && g.client == nil: // a ClientError logs by itself
			c.logger.Log(d.Level, d.Sentence, zap.String("remedy", d.Remedy), Mark(g.code))
		case !is && lasted:
			c.logger.Info("for a minute no more: "+d.Sentence, zap.Uint64("count", g.sum), zap.Inline(&transition{act: actEnded, codes: []Code{g.code}}))
		}
	}
}

func (g *growth) tick(now time.Time) {
	n := g.read()
	if now.Before(g.last) { // the clock was set back
		if g.last = now; now.Before(g.since) {
			g.since = now
		}
	}
	if grown := n - min(n, g.was); grown > 0 {
		if g.since.IsZero() {
			g.since, g.sum = now, 0
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
		c.Fields["peer"] = g.client.lastPeer()
	}
	return c
}
