package own

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Both transports get the same bytes, and what a client gets of them is compared: see script, duel and
// differences.

// TestTransportsAnswerAlike plays scripts to both transports. What differs has its reason in differences,
// each of which shows.
func TestTransportsAnswerAlike(t *testing.T) {
	if len(differences) > mostDifferences {
		t.Errorf("there are %d differences, more than %d", len(differences), mostDifferences)
	}
	seen := map[string]bool{}
	played := 0
	all := slices.Concat(alike, streams, endings)
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t)
			s.begin()
			tt.plays(s)
			for _, name := range duel(t, s, differences) {
				seen[name] = true
			}
			played++
		})
	}
	for _, d := range differences {
		if played == len(all) && !seen[d.name] && !d.byChance {
			t.Errorf("no script shows the difference %q", d.name)
		}
	}
}

const duelRules = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3}}, " +
	"{key: held, rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 100}}]}"

// duel plays a script to both transports and compares what came. It returns the names of the differences
// that explain what is not equal.
func duel(t *testing.T, s *script, explained []difference) (used []string) {
	t.Helper()
	var theirs, ours *player
	played := 0
	synctest.Test(t, func(t *testing.T) {
		theirs, ours = newPlayer(t, transportGRPC, s.limit), newPlayer(t, transportOwn, s.limit)
		defer theirs.stop()
		defer ours.stop()
		for at, step := range s.steps {
			if step.bytes != nil {
				theirs.queue <- step.bytes
				ours.queue <- step.bytes
			}
			// A millisecond is enough for all that waits for less, such as a reader that parks.
			time.Sleep(step.waits + time.Millisecond)
			synctest.Wait()
			theirs.look(t, at)
			ours.look(t, at)
			played = at
			if theirs.ended >= 0 || ours.ended >= 0 || ours.goAway != nil || theirs.goAway != nil {
				return // what comes later is neither compared nor said
			}
		}
	})
	c := &comparison{script: s, theirs: theirs, ours: ours, played: played}
	return c.compare(t, explained)
}

// comparison is the comparison of what came of a script.
type comparison struct {
	*script
	theirs, ours *player
	played       int // the last step
	ended        int // the step at which the connection ended
	// stream is the one that is compared, 0 for the connection.
	stream uint32
}

// compare fails the test if something differs that no difference explains.
func (c *comparison) compare(t *testing.T, explained []difference) (used []string) {
	t.Helper()
	var all []uint32
	for _, p := range []*player{c.theirs, c.ours} {
		for id := range p.streams {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	slices.Sort(all)
	// What came with the end of the connection depends on who wrote it first.
	c.ended = len(c.steps)
	for _, p := range []*player{c.theirs, c.ours} {
		if p.ended >= 0 || p.goAway != nil {
			c.ended = c.played
		}
	}
	all = slices.DeleteFunc(all, func(id uint32) bool {
		return c.of(c.theirs, id).last >= c.ended || c.of(c.ours, id).last >= c.ended
	})
	describe := func(id uint32) string {
		if id == 0 {
			state := func(p *player) string {
				if p.goAway != nil {
					return fmt.Sprintf("%q, GOAWAY %v %d (%s)", p.events, p.goAway.ErrCode, p.goAway.LastStreamID, p.reason)
				}
				return fmt.Sprintf("%q, ended %v", p.events, p.ended >= 0)
			}
			return "the connection\nby grpc-go " + state(c.theirs) + "\nby us      " + state(c.ours)
		}
		return fmt.Sprintf("stream %d, %v\nby grpc-go %v\nby us      %v", id, c.requests[id], c.of(c.theirs, id), c.of(c.ours, id))
	}
	for _, id := range append([]uint32{0}, all...) {
		c.stream = id
		before := describe(id)
		for _, d := range explained {
			if c.equal() {
				break
			}
			if d.explains(c) {
				used = append(used, d.name)
			}
		}
		if !c.equal() {
			t.Errorf("%s\nexplained so far: %q", before, used)
		}
	}
	return used
}

func (c *comparison) of(p *player, id uint32) *answered {
	if o := p.streams[id]; o != nil {
		return o
	}
	o := &answered{end: -1}
	p.streams[id] = o
	return o
}

func (c *comparison) equal() bool {
	if c.stream == 0 {
		code := func(p *player) any {
			if p.goAway == nil {
				return p.ended >= 0
			}
			return p.goAway.ErrCode
		}
		return slices.Equal(c.theirs.events, c.ours.events) && code(c.theirs) == code(c.ours)
	}
	a, b := c.of(c.theirs, c.stream), c.of(c.ours, c.stream)
	return slices.Equal(a.headers, b.headers) && bytes.Equal(a.body, b.body) && slices.Equal(a.trailers, b.trailers) &&
		a.end == b.end && slices.Equal(a.resets, b.resets)
}
