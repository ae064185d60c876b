package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

type item struct {
	// id identifies the item in the states of other times and replicas.
	id string
	// prefix has the figures or the time before the text, and more are further lines.
	prefix, text string
	more         []string
	// at is the time of an event, and of the start of a condition.
	at   time.Time
	tone tone
	// Items are sorted by rank, denials and hits.
	rank         int
	denied, hits float64
	domain       string
	// key is set for denied keys, and limit for limits.
	key   *live.Key
	limit *live.RuleState
}

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.denied, a.denied), cmp.Compare(b.hits, a.hits), cmp.Compare(a.id, b.id))
}

// section is a part of the list.
type section struct {
	title string // with those of the columns
	items []item
	// parts is the part of the screen that the section may fill, in fifths.
	parts int
	// note is a line after the items.
	note string
}

// sections returns the lists of a state. Conditions come first, then denied keys.
func (v *view) sections(s *live.State) []section {
	var conditions, keys, unmatched, limits, events []item
	for i := range s.Conditions {
		conditions = append(conditions, conditionItem(&s.Conditions[i], s.Time))
	}
	for i := range s.UnknownDomains {
		unmatched = append(unmatched, unknownItem(&s.UnknownDomains[i]))
	}
	for i := range s.Domains {
		d := &s.Domains[i]
		for j := range d.DeniedKeys {
			keys = append(keys, keyItem(d.Domain, &d.DeniedKeys[j], s.Time))
		}
		for j := range d.Unmatched {
			unmatched = append(unmatched, unmatchedItem(d.Domain, &d.Unmatched[j], s.Time))
		}
		for j := range d.Rules {
			limits = append(limits, v.limitItem(d.Domain, &d.Rules[j]))
		}
	}
	for i := range s.Events {
		events = append(events, eventItem(&s.Events[i], s.Time))
	}
	slices.SortFunc(keys, compareItems)
	slices.SortFunc(limits, compareItems)
	slices.SortStableFunc(unmatched, func(a, b item) int { return cmp.Compare(a.rank, b.rank) })
	omitted := ""
	if n := s.Config.Omitted; n > 0 {
		omitted = rules.Count(n, "other") + " with fewer hits, not searched"
	}
	return []section{
		{title: "CONDITIONS", items: conditions, parts: 2},
		{title: "DENIED/S  SHARE    DENIED       SINCE  KEY", items: keys, parts: 2},
		{title: "NO RULE MATCHES", items: unmatched, parts: 1},
		{title: "  HITS/S  DENIED/S   LAST 5 MINUTES  LIMIT", items: limits, parts: 2, note: omitted},
		{title: "EVENTS", items: events, parts: 5},
	}
}

// find returns the item with an id.
func (v *view) find(s *live.State, id string) (item, bool) {
	for _, section := range v.sections(s) {
		for _, i := range section.items {
			if i.id == id {
				return i, true
			}
		}
	}
	return item{}, false
}

func makeID(parts ...string) string { return strings.Join(parts, "\x00") }

const indent = "           "

func conditionItem(c *telemetry.Condition, now time.Time) item {
	return item{
		id: makeID("condition", c.Replica, string(c.Code), c.Text), tone: toneOf(c.Severity), at: c.Since, prefix: format.TimeAt(c.Since, now) + " ! ",
		text: fmt.Sprintf("%s%s [%s]%s", replicaPrefix(c.Replica), c.Text, c.Code, telemetry.FieldsText(c.Fields)),
		more: append(slices.Clip(c.Lines), "remedy: "+c.Remedy),
	}
}

func toneOf(severity string) tone { return map[string]tone{"error": red, "warning": yellow}[severity] }

func keyItem(domain string, k *live.Key, now time.Time) item {
	since := format.TimeAt(k.Since, now)
	i := item{
		id: makeID("key", domain, k.Hash), tone: yellow, text: cmp.Or(k.Descriptor, "#"+k.Hash) + "  ",
		prefix: fmt.Sprintf("%8s  %4.0f%%  %8d  %10s  ", format.Rate(k.PerSecond), 100*k.Share, k.Denied, since[:min(len(since), len(time.DateOnly))]),
		domain: domain, denied: k.PerSecond, hits: float64(k.Denied), key: k,
	}
	if k.PerSecond == 0 {
		i.tone = faint
	}
	if k.PenaltyUntil != nil {
		i.text += "until " + format.TimeAt(*k.PenaltyUntil, now) + "  "
	}
	i.text += domain + ": "
	if k.Rule == "" {
		i.text += "limit override of the request"
		return i
	}
	i.text += k.Rule + " "
	if k.InFlight != nil {
		i.text += fmt.Sprintf("%d of %d in flight, ", *k.InFlight, k.Permits)
	}
	i.text += limitText(k.Limit, k.OwnLimit, k.Table) + unitSuffix(k.Unit)
	return i
}

// limitText returns the limit of a rule, or that of a counter if it comes from a row of a table.
func limitText(limit, own, table string) string {
	if own != "" && table != "" {
		return own + ", from table " + table
	}
	return limit
}

// unitSuffix labels limits of anything but requests.
func unitSuffix(unit string) string {
	if unit == "" || unit == "requests" {
		return ""
	}
	return " (" + unit + ")"
}

func unknownItem(u *live.UnknownDomain) item {
	i := item{
		id: makeID("unknown", u.Domain), tone: yellow, prefix: "  ", text: format.Rate(u.PerSecond) + " per second",
	}
	if u.PerSecond == 0 { // no longer requested
		i.tone = faint
		i.rank = 2
		i.text = fmt.Sprintf("none now, %d before,", u.Descriptors)
	}
	i.text += fmt.Sprintf(" for the domain %s, which has no rules", u.Domain)
	if u.Meant != "" {
		i.text += "; did you mean " + u.Meant + "?"
	}
	return i
}

func unmatchedItem(domain string, u *live.Unmatched, now time.Time) item {
	text := fmt.Sprintf("%s, seen %d, last %s: %s", domain, u.Seen, format.TimeAt(u.Last, now), u.Why)
	return item{
		id: makeID("unmatched", domain, strconv.Itoa(u.Entry), u.Below, u.Key), prefix: "  ", text: text, rank: 1,
	}
}

func (v *view) limitItem(domain string, r *live.RuleState) item {
	text := domain + ": " + r.Rule + " " + r.Limit + unitSuffix(r.Unit)
	if r.Shadow {
		text += fmt.Sprintf(" (shadow, would deny %s/s)", format.Rate(r.Rate.Shadow))
	}
	if r.Soft {
		text += fmt.Sprintf(" (%s/s above it)", format.Rate(r.Rate.Shadow))
	}
	var hits []uint32
	if r.Line != nil {
		hits = r.Line.Hits
	}
	return item{
		id: makeID("limit", domain, r.Rule, r.Limit, r.Name, strconv.FormatBool(r.Shadow)), text: text,
		prefix: fmt.Sprintf("%8s  %8s  %15s  ", format.Rate(r.Hits), format.Rate(r.Denied), v.sparkline(hits, 15)),
		domain: domain, rank: strings.Index("requests permits tokens hits", r.Unit), denied: r.Denied, hits: r.Hits, limit: r,
	}
}

func eventItem(e *telemetry.Event, now time.Time) item {
	text := replicaPrefix(e.Replica) + e.Text
	switch {
	case e.Ends:
		text += " [ends " + e.Code + "]"
	case e.Code != "":
		text += " [" + e.Code + "]"
	}
	text += telemetry.FieldsText(e.Fields)
	if e.Count > 1 {
		text += fmt.Sprintf(" (%d times)", e.Count)
	}
	if len(e.Lines) > 0 {
		text += "; " + e.Lines[0]
	}
	return item{
		id: makeID("event", e.Replica, e.Time.String(), e.Text), tone: toneOf(e.Level), at: e.Time, prefix: format.TimeAt(e.Time, now) + "   ", text: text,
	}
}

func replicaPrefix(replica string) string {
	if replica == "" {
		return ""
	}
	return replica + ": "
}
