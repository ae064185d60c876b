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
	// An item of a table has cells, other items have a prefix. Then come the client and the text.
	// The client and the name of the limit, which is a part of the text, may be shortened. more are
	// further lines.
	cells                      []string
	prefix, client, name, text string
	more                       []string
	// at is the time of an event, and of the start of a condition.
	at   time.Time
	tone tone
	// Items are sorted by rank, and then by the other fields.
	domain       string
	rank         int
	denied, hits float64
	// key is set for denied keys, and limit for limits.
	key   *live.Key
	limit *live.RuleState
}

type order int

const (
	byDenials order = iota
	byHits
	byName
	orders
)

func (o order) compare(a, b item) int {
	rank := cmp.Compare(a.rank, b.rank)
	denied := cmp.Compare(b.denied, a.denied)
	hits := cmp.Compare(b.hits, a.hits)
	switch o {
	case byHits:
		return cmp.Or(rank, hits, denied)
	case byName:
		return cmp.Or(cmp.Compare(a.domain, b.domain), rank, denied, cmp.Compare(a.text, b.text))
	default:
		return cmp.Or(rank, denied, hits, cmp.Compare(a.id, b.id))
	}
}

// section is a part of the list: a table if it has columns.
type section struct {
	title   string
	columns []column
	items   []item
	// parts is the part of the screen that the section may fill, in fifths.
	parts int
	// about is a part of the title, and note a line after the items.
	about, note string
	// partial is true if the state lacks rows, and the note is about them.
	partial bool
}

// sections returns the lists of a state. Conditions come first, then denied keys.
func (v *view) sections(s *live.State, o order) []section {
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
	sinceWidth := len(time.TimeOnly)
	for _, k := range keys {
		sinceWidth = max(sinceWidth, len(k.cells[3])) // a date is longer
	}
	slices.SortStableFunc(keys, o.compare)
	slices.SortStableFunc(limits, o.compare)
	slices.SortStableFunc(unmatched, func(a, b item) int { return cmp.Compare(a.rank, b.rank) })
	omitted := ""
	if n := s.Config.Omitted; n > 0 {
		omitted = rules.Count(n, "other") + ", with fewer hits"
	}
	return []section{
		{title: conditionsTitle, items: conditions, parts: 2},
		{title: "KEY", columns: []column{{"DENIED/S", 8}, {"SHARE", 5}, {"DENIED", 8}, {"SINCE", sinceWidth}}, items: keys, parts: 2, about: "share of domain's denials"},
		{title: "NO RULE MATCHES", items: unmatched, parts: 1},
		{title: "LIMIT", columns: []column{{"HITS/S", 8}, {"DENIED/S", 8}, {"LAST 5 MINUTES", 15}}, items: limits, parts: 2, note: omitted, partial: true},
		{title: "EVENTS", items: events, parts: 5},
	}
}

// find returns the given item of another state.
func (v *view) find(s *live.State, other item) (item, bool) {
	for _, section := range v.sections(s, byDenials) {
		if at := indexOf(section.items, other); at >= 0 {
			return section.items[at], true
		}
	}
	return item{}, false
}

// indexOf returns the index of the given item of another state, or -1. The id of a key changes when
// its values are shown or hidden, but not its hash.
func indexOf(items []item, other item) int {
	if at := slices.IndexFunc(items, func(i item) bool { return i.id == other.id }); at >= 0 || other.key == nil {
		return at
	}
	return slices.IndexFunc(items, func(i item) bool {
		return i.key != nil && i.domain == other.domain && i.key.Hash == other.key.Hash
	})
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
		id: makeID("key", domain, k.Hash), tone: yellow, client: "#" + k.Hash, name: domain + ": " + k.Rule,
		cells:  []string{format.Rate(k.PerSecond), fmt.Sprintf("%.0f%%", 100*k.Share), strconv.FormatUint(k.Denied, 10), since[:min(len(since), len(time.DateOnly))]},
		domain: domain, denied: k.PerSecond, hits: float64(k.Denied), key: k,
	}
	if k.PerSecond == 0 {
		i.tone = faint
	}
	limit := " " + limitText(k.Limit, k.OwnLimit, k.Table)
	if k.Rule == "" {
		i.name = domain + ": limit override of the request"
		limit = ""
	}
	if k.InFlight != nil {
		limit = fmt.Sprintf(" %d of %d in flight,", *k.InFlight, k.Permits) + limit
	}
	i.text = i.name + limit + unitSuffix(k.Unit)
	if k.PenaltyUntil != nil {
		i.text = "until " + format.TimeAt(*k.PenaltyUntil, now) + "  " + i.text
	}
	if k.Descriptor != "" {
		i.client = k.Descriptor
		if !strings.HasSuffix(k.Descriptor, "…") { // hashes differ between replicas
			i.id = makeID("key", domain, k.Rule, k.Limit, k.Descriptor)
		}
	}
	if k.Descriptor == k.Rule && k.Rule != "" { // the rule is for this client only
		i.client = ""
	}
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
	text := fmt.Sprintf("%s, seen %d, last %s: ", domain, u.Seen, format.TimeAt(u.Last, now))
	// The positions of rules are long and may be truncated, so the suggestion comes first.
	if why, ok := strings.CutSuffix(u.Why, rules.DidYouMean(u.Meant, []string{u.Meant})); ok && u.Meant != "" {
		text += fmt.Sprintf("did you mean %q? %s", u.Meant, why)
	} else {
		text += u.Why
	}
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
		id: makeID("limit", domain, r.Rule, r.Limit, r.Name, strconv.FormatBool(r.Shadow)), name: domain + ": " + r.Rule, text: text,
		cells:  []string{format.Rate(r.Hits), format.Rate(r.Denied), v.sparkline(hits, 15)},
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
