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
	ticked time.Time // time of the last tick; zero before the first
	// marks are counts at two earlier times, at least markInterval apart, the older one first.
	marks [2]mark
}

// mark is a count at a time.
type mark struct {
	count uint64
	at    time.Time
}

// markInterval is the time between marks. So rates cover the last five to ten seconds.
const markInterval = 5 * time.Second

// WhileGrows raises a condition while the count that read returns grows, and for a minute after
// that. The log gets a line at its start and at its end. [Conditions.Tick] must be called
// periodically.
func (c *Conditions) WhileGrows(code Code, read func() uint64) {
	c.addGrowth(&growth{code: code, read: read, was: read()})
}

func (c *Conditions) addGrowth(g *growth) {
	c.growing.Lock()
	defer c.growing.Unlock()
	c.growths = append(c.growths, g)
}

// Tick starts and ends the conditions of [Conditions.WhileGrows] at the time now.
func (c *Conditions) Tick(now time.Time) {
	c.growing.Lock()
	defer c.growing.Unlock()
	for _, g := range c.growths {
		wasActive, hadStarted := g.active(now), !g.since.IsZero()
		g.tick(now)
		d := g.code.Define()
		switch active := g.active(now); {
		case active && !wasActive && g.client == nil: // a ClientError logs itself
			c.logger.Log(d.Level, d.Sentence, zap.String("remedy", d.Remedy), Mark(g.code))
		case !active && hadStarted:
			c.logger.Info("not seen for a minute: "+d.Sentence, zap.Uint64("count", g.sum), zap.Inline(&transition{act: actEnded, codes: []Code{g.code}}))
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
	before := mark{g.was, g.ticked}
	if g.ticked.IsZero() || now.Before(g.ticked) { // the clock was set back
		before.at = now
	}
	g.was, g.ticked = n, now
	switch age := now.Sub(g.marks[1].at); {
	case age < 0 || age > 2*markInterval: // the first tick, ticks have paused, or the clock was set
		g.marks = [2]mark{before, {n, now}}
	case age >= markInterval:
		g.marks = [2]mark{g.marks[1], {n, now}}
	}
}

// perSecond returns the growth per second at the time now, rounded to a tenth.
func (g *growth) perSecond(now time.Time) float64 {
	passed := max(time.Second, now.Sub(g.marks[0].at)).Seconds()
	return math.Round(10*float64(g.was-min(g.was, g.marks[0].count))/passed) / 10
}

func (g *growth) active(now time.Time) bool {
	return !g.since.IsZero() && now.Sub(g.last) <= growthEnds
}

// condition returns the condition at the time now.
func (g *growth) condition(now time.Time) Condition {
	c := NewCondition(g.code, g.since)
	c.Fields = map[string]any{"count": g.sum, "per_second": g.perSecond(now)}
	if g.client != nil {
		g.client.describe(c.Fields)
	}
	return c
}
