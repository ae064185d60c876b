package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// view formats a state as lines for a terminal.
type view struct {
	width        int
	utf8, colour bool
}

// supportsUTF8 reports whether the locale in the environment has UTF-8.
func supportsUTF8(get func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(get(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// Colours of lines, as parameters of the control sequence SGR (ECMA-48).
const (
	plain  = ""
	strong = "1"
	red    = "31"
	yellow = "33"
	faint  = "2"
)

// paint truncates a line to the width of the view and colours it. It replaces control characters,
// since parts of a line come from clients, and keys of rules may contain any characters.
func (v *view) paint(colour, line string) string {
	line = v.truncate(v.printable(line), v.width)
	if !v.colour || colour == plain {
		return line
	}
	return "\x1b[" + colour + "m" + line + "\x1b[0m"
}

// wrap breaks text into at most maxLines lines and indents all but the first.
func (v *view) wrap(colour, text string, maxLines int) (lines []string) {
	rest := []rune(text)
	for indent := ""; len(rest) > 0; indent = "           " {
		cut := fitRunes(rest, max(20, v.width-len(indent)))
		if cut == len(rest) || len(lines) == maxLines-1 {
			return append(lines, v.paint(colour, indent+string(rest)))
		}
		for i := cut; i > cut/2; i-- {
			if rest[i] == ' ' {
				cut = i
				break
			}
		}
		lines = append(lines, v.paint(colour, indent+string(rest[:cut])))
		rest = []rune(strings.TrimLeft(string(rest[cut:]), " "))
	}
	return lines
}

// render returns a state in at most height lines, or about sixty if height is 0. Conditions come
// first, then denied keys.
func (v *view) render(s *live.State, height int) []string {
	if height == 0 {
		height = 60
	}
	all := v.header(s)
	add := func(title string, maxLines int, lines []string) {
		if len(lines) == 0 || len(all)+2 > height {
			return
		}
		all = append(all, "", v.paint(strong, title))
		all = append(all, lines[:min(len(lines), maxLines, height-len(all))]...)
	}
	share := max(3, (height-len(all))/5)
	add("CONDITIONS", 2*share, v.conditions(s.Conditions))
	add("DENIED/S  SHARE    DENIED  SINCE     KEY", 2*share, v.keys(s))
	add("NO RULE MATCHES", share, v.unmatched(s))
	add("  HITS/S  DENIED/S  LAST 5 MINUTES   LIMIT", 2*share, v.limits(s))
	add("DEMAND/S  ASSIGNED  OF LIMIT  DIVIDED LIMIT", 2*share, v.quota(s.Quota))
	add("EVENTS", height, v.events(s.Events))
	return all
}

func (v *view) header(s *live.State) []string {
	parts := []string{
		s.Host, rules.Count(s.Config.Limits, "limit"), "rules " + s.Config.Hash, "keys " + s.TopKeys,
		"up " + s.Time.Sub(s.Started).Truncate(time.Second).String(), "sluice " + s.Program,
	}
	all := []string{v.paint(strong, s.Time.Local().Format(time.TimeOnly)+"  "+strings.Join(parts, ", "))}
	switch {
	case s.ShadowMode:
		all = append(all, v.paint(yellow, "shadow mode: every request is allowed, despite the denials below"))
	case s.Config.Hash == "":
		all = append(all, v.paint(red, "no rules loaded: every request gets an error"))
	case s.Config.Limits == 0:
		all = append(all, v.paint(red, "the rules have no limits: every request is allowed"))
	}
	if s.Counters == "store" {
		all = append(all, v.paint(faint, "counters are shared: rates and keys are those seen by the replicas shown here"))
	}
	if s.HashKey == "" && s.TopKeys == live.Hashed { // of several replicas
		text := "hashes of clients differ between replicas, because each has its own hash key"
		if s.Counters == "store" {
			text = "hashes of clients differ between replicas without a common --hash-key-file"
		}
		all = append(all, v.paint(faint, text))
	}
	return all
}

func (v *view) conditions(all []telemetry.Condition) (lines []string) {
	for i := range all {
		w := &all[i]
		colour := map[string]string{"error": red, "warning": yellow}[w.Severity]
		lines = append(lines, v.wrap(colour, fmt.Sprintf("%s ! %s%s [%s]%s", timeOfDay(w.Since), replicaPrefix(w.Replica), w.Text, w.Code, telemetry.FieldsText(w.Fields)), 3)...)
		for _, line := range w.Lines {
			lines = append(lines, v.wrap(plain, "           "+line, 3)...)
		}
		lines = append(lines, v.wrap(plain, "           remedy: "+w.Remedy, 2)...)
	}
	return lines
}

func (v *view) keys(s *live.State) (lines []string) {
	type domainKey struct {
		domain string
		*live.Key
	}
	var all []domainKey
	for i := range s.Domains {
		for j := range s.Domains[i].DeniedKeys {
			all = append(all, domainKey{s.Domains[i].Domain, &s.Domains[i].DeniedKeys[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b domainKey) int { return live.CompareKeys(*a.Key, *b.Key) })
	for _, k := range all {
		colour := yellow
		if k.PerSecond == 0 {
			colour = faint
		}
		about := fmt.Sprintf("%8s %5.0f%% %9d  %s  ", formatRate(k.PerSecond), 100*k.Share, k.Denied, timeOfDay(k.Since))
		lines = append(lines, v.paint(colour, about+v.key(k.domain, k.Key, v.width-len(about))))
	}
	return lines
}

// key returns the client and the limit of a key for the given number of columns. If both do not
// fit, it truncates the client, to at least 16 columns.
func (v *view) key(domain string, k *live.Key, columns int) string {
	limit := "limit override of the request"
	if k.Rule != "" {
		limit = k.Rule + " " + k.Limit
	}
	rest := "  " + domain + ": " + limit
	if k.PenaltyUntil != nil {
		rest = " until " + timeOfDay(*k.PenaltyUntil) + rest
	}
	client := "#" + k.Hash
	switch k.Descriptor {
	case "":
	case k.Rule: // the rule is for this client only
		return strings.TrimLeft(rest, " ")
	default:
		client = v.truncate(k.Descriptor, max(16, columns-textWidth(rest)))
	}
	return client + rest
}

func (v *view) unmatched(s *live.State) (lines []string) {
	var past []string // domains that are no longer requested
	for i := range s.UnknownDomains {
		u := &s.UnknownDomains[i]
		about := fmt.Sprintf("the domain %s, which has no rules", u.Domain)
		if u.Meant != "" {
			about += "; did you mean " + u.Meant + "?"
		}
		if u.PerSecond > 0 {
			lines = append(lines, v.wrap(yellow, fmt.Sprintf("  %s per second for %s", formatRate(u.PerSecond), about), 2)...)
		} else {
			past = append(past, v.wrap(faint, fmt.Sprintf("  none now, %d before, for %s", u.Descriptors, about), 2)...)
		}
	}
	for i := range s.Domains {
		for j := range s.Domains[i].Unmatched {
			u := &s.Domains[i].Unmatched[j]
			text := fmt.Sprintf("  %s, seen %d, last %s: ", s.Domains[i].Domain, u.Seen, timeOfDay(u.Last))
			// The positions of rules are long and may be truncated, so the suggestion comes first.
			if why, ok := strings.CutSuffix(u.Why, rules.DidYouMean([]string{u.Meant})); ok && u.Meant != "" {
				text += fmt.Sprintf("did you mean %q? %s", u.Meant, why)
			} else {
				text += u.Why
			}
			lines = append(lines, v.wrap(plain, text, 3)...)
		}
	}
	return append(lines, past...)
}

func (v *view) limits(s *live.State) (lines []string) {
	type row struct {
		domain string
		*live.RuleState
	}
	var all []row
	for i := range s.Domains {
		for j := range s.Domains[i].Rules {
			all = append(all, row{s.Domains[i].Domain, &s.Domains[i].Rules[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b row) int { return live.CompareRates(a.Rate, b.Rate) })
	for _, r := range all {
		text := r.Rule + " " + r.Limit
		if r.Shadow {
			text += fmt.Sprintf(" (shadow, would deny %s/s)", formatRate(r.Rate.Shadow))
		}
		lines = append(lines, v.paint(plain, fmt.Sprintf("%8s  %8s  %s  %s: %s", formatRate(r.Hits), formatRate(r.Denied), v.sparkline(r.Line), r.domain, text)))
	}
	return lines
}

// sparkline draws the hits of the last five minutes in 15 columns.
func (v *view) sparkline(l *live.Line) string {
	const columns = 15
	steps := []rune("0123456789")
	if v.utf8 {
		steps = []rune(" ▁▂▃▄▅▆▇█")
	}
	var sums [columns]uint64
	most := uint64(1)
	if l != nil && len(l.Hits) > 0 {
		for i, n := range l.Hits {
			at := i * columns / len(l.Hits)
			sums[at] += uint64(n)
			most = max(most, sums[at])
		}
	}
	out := make([]rune, columns)
	for i, n := range sums {
		at := int(float64(n) / float64(most) * float64(len(steps)-1))
		if n > 0 {
			at = max(1, at)
		}
		out[i] = steps[at]
	}
	return string(out)
}

func (v *view) events(all []telemetry.Event) (lines []string) {
	for i := range all {
		e := &all[i]
		colour := map[string]string{"error": red, "warning": yellow}[e.Level]
		text := timeOfDay(e.Time) + "   " + replicaPrefix(e.Replica) + e.Text + codeSuffix(e) + telemetry.FieldsText(e.Fields)
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		if len(e.Lines) > 0 {
			text += "; " + e.Lines[0]
		}
		lines = append(lines, v.wrap(colour, text, 3)...)
	}
	return lines
}

// codeSuffix returns the code of the condition of an event, in brackets.
func codeSuffix(e *telemetry.Event) string {
	if e.Code == "" {
		return ""
	}
	if e.Ends {
		return " [ends " + e.Code + "]"
	}
	return " [" + e.Code + "]"
}

func timeOfDay(t time.Time) string { return t.Local().Format(time.TimeOnly) }

func replicaPrefix(replica string) string {
	if replica == "" {
		return ""
	}
	return replica + ": "
}

// formatRate formats a rate in few characters.
func formatRate(f float64) string {
	switch {
	case f >= 100_000:
		return fmt.Sprintf("%.0fk", f/1000)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	default:
		return fmt.Sprintf("%.1f", f)
	}
}
