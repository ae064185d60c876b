package top

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

type list struct {
	items []item
	lines []line
}

// add adds a section. It shows only items that match the filter, in at most maxLines lines.
func (l *list) add(v *view, s section, filter string, maxLines int) {
	items := slices.DeleteFunc(s.items, func(i item) bool { return !strings.Contains(strings.ToLower(i.text), filter) })
	if len(items) == 0 && s.note == "" {
		return
	}
	var lines []line
	shown := 0
	for shown < len(items) && len(lines) < maxLines {
		i := items[shown]
		own := v.wrap(i.tone, i.prefix, i.text, 3)
		for _, text := range i.more {
			own = append(own, v.wrap(plain, indent, text, 3)...)
		}
		for _, one := range own {
			one.item = len(l.items) + shown
			lines = append(lines, one)
		}
		shown++
	}
	lines = lines[:min(len(lines), maxLines)]
	if shown < len(items) {
		s.title += fmt.Sprintf(" (%d of %d)", shown, len(items))
	}
	if s.note != "" {
		lines = append(lines, v.line(yellow, "  "+s.note))
	}
	l.items = append(l.items, items[:shown]...)
	l.lines = append(append(l.lines, line{item: -1}, v.line(strong, s.title)), lines...)
}

// layout returns the list of a state. The filter does not hide conditions. Sections share a screen of the given height, or are complete
// if it is 0.
func (v *view) layout(s *live.State, filter string, height int) (l list) {
	share := max(3, height/5)
	if height == 0 {
		share = 1 << 30
	}
	sections := v.sections(s)
	l.add(v, sections[0], "", share*sections[0].parts)
	conditions := len(l.items)
	for _, one := range sections[1:] {
		l.add(v, one, filter, share*one.parts)
	}
	if filter != "" && len(l.items) == conditions {
		l.lines = append(l.lines, line{item: -1}, v.line(yellow, "no row matches"))
	}
	return l
}

// header returns the first lines of a screen.
func (v *view) header(s *live.State) []line {
	all := v.status(s)
	parts := []string{
		s.Host, rules.Count(s.Config.Limits, "limit"), "rules " + s.Config.Hash, "keys " + s.TopKeys,
		"up " + s.Time.Sub(s.Started).Truncate(time.Second).String(), "sluice " + s.Program,
	}
	if u := s.UnmaskedUntil; u != nil {
		parts[3] += ", values until " + format.Time(*u)
	}
	all = append(all, v.line(faint, strings.Join(parts, ", ")))
	for i := range s.Conditions {
		if s.Conditions[i].Code == telemetry.ReplicasCountSeparately {
			all = append(all, v.line(yellow, s.Conditions[i].Text))
		}
	}
	switch {
	case s.ShadowMode:
		all = append(all, v.line(yellow, "shadow mode: every request is allowed, despite the denials below"))
	case s.Config.Hash == "":
		all = append(all, v.line(red, "no rules loaded: every request gets an error"))
	case s.Config.Limits == 0:
		all = append(all, v.line(red, "the rules have no limits: every request is allowed"))
	}
	if s.Counters == "store" {
		all = append(all,
			v.line(faint, "counters are shared: rates and keys are those seen by the replicas shown here"))
	}
	if s.HashKey == "" && (s.TopKeys == live.Hashed || s.TopKeys == live.HashedOnly) { // of several replicas
		all = append(all, v.line(faint, "hashes of clients differ between replicas, because each has its own hash key"))
	}
	return all
}

func (v *view) screen(s *live.State, height int) []line {
	lines := v.header(s)
	lines = append(lines, v.layout(s, "", height-len(lines)).lines...)
	return lines[:min(len(lines), height)]
}

// status returns the status line, and a hint if there are no calls.
func (v *view) status(s *live.State) []line {
	c := &s.Status
	tone := strong
	if c.Errors > 0 || c.Store == live.StoreUnavailable {
		tone = red
	}
	clock := s.Time.Local().Format("15:04:05 MST") + "  "
	calls := fmt.Sprintf("%s calls/s, %s denied/s, %s errors/s, %s", format.Rate(c.Calls), format.Rate(c.Denied),
		format.Rate(c.Errors), rules.Count(c.Connections, "connection"))
	var parts []string
	if c.P99 != nil {
		parts = append(parts, fmt.Sprintf("p99 %.2g ms", 1e3**c.P99))
	}
	if c.MaxCounters > 0 {
		parts = append(parts, format.Count(c.Counters)+" of "+format.Count(c.MaxCounters)+" counters")
	}
	if c.Store != live.StoreNone && c.Store != "" {
		parts = append(parts, "store "+c.Store)
	}
	rest := strings.Join(parts, ", ")
	var all []line
	if text := clock + calls + ", " + rest; len(text) <= v.width {
		all = append(all, v.line(tone, strings.TrimSuffix(text, ", ")))
	} else {
		all = slices.Concat(v.wrap(tone, clock, calls, 2), v.wrap(tone, strings.Repeat(" ", len(clock)), rest, 3))
	}
	switch {
	case c.Calls > 0:
	case c.Connections == 0:
		all = append(all, v.wrap(yellow, "", "no calls: no Envoy is connected. Point the cluster of its rate limit filter at --grpc-addr; sluice envoy check verifies its configuration", 3)...)
	default:
		all = append(all, v.wrap(yellow, "", "no calls, but "+rules.Count(c.Connections, "connection")+": Envoy only calls for routes with rate_limits, or the filter is disabled; sluice envoy check verifies its configuration", 3)...)
	}
	return all
}

// Text returns a snapshot as text for the given terminal, or for another output if it is nil. It
// has about sixty lines.
func Text(s *Snapshot, terminal *os.File) []string {
	const height = 60
	v := view{width: 80}
	styled := false
	if terminal != nil {
		if width, _, err := term.GetSize(terminal.Fd()); err == nil && width > 0 {
			v.width = max(40, width)
		}
		styled = os.Getenv("NO_COLOR") == "" && !isDumb(os.Getenv("TERM"))
	}
	var texts []string
	for _, l := range v.screen(s.Sum, height) {
		if styled {
			l.text = styles[l.tone].Render(l.text)
		}
		texts = append(texts, l.text)
	}
	return texts
}
