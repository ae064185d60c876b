package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// item is an element of a list. One of the pointers is set.
type item struct {
	domain    string
	condition *telemetry.Condition
	key       *live.Key
	unmatched *live.Unmatched
	unknown   *live.UnknownDomain
	limit     *live.RuleState
	bucket    *live.QuotaBucket
	event     *telemetry.Event
}

// name identifies the item in the states of different times, except for events of the same text.
func (i item) name() string {
	switch {
	case i.condition != nil:
		return "condition\x00" + i.condition.Replica + "\x00" + string(i.condition.Code) + "\x00" + i.condition.Text
	case i.key != nil:
		return "key\x00" + i.domain + "\x00" + i.key.Hash
	case i.unmatched != nil:
		return fmt.Sprint("unmatched\x00", i.domain, "\x00", i.unmatched.Entry, "\x00", i.unmatched.Below, "\x00", i.unmatched.Key)
	case i.unknown != nil:
		return "unknown\x00" + i.unknown.Domain
	case i.limit != nil:
		return fmt.Sprint("limit\x00", i.domain, "\x00", i.limit.Rule, "\x00", i.limit.Limit, "\x00", i.limit.Name, "\x00", i.limit.Shadow)
	case i.bucket != nil:
		return "bucket\x00" + i.bucket.Replica + "\x00" + i.domain + "\x00" + i.bucket.Rule + "\x00" + i.bucket.Hash
	default:
		return fmt.Sprint("event\x00", i.event.Replica, "\x00", i.event.Time, "\x00", i.event.Text)
	}
}

// matches reports whether the domain or the text of an item contains a filter, which is in lower
// case. All conditions match.
func (i item) matches(filter string) bool {
	text := ""
	switch {
	case filter == "" || i.condition != nil:
		return true
	case i.key != nil:
		text = "#" + i.key.Hash + " " + i.key.Descriptor + " " + i.key.Rule + " " + i.key.Limit + " " + i.key.OwnLimit + " " + i.key.Table + " " + i.key.Name
	case i.unmatched != nil:
		text = i.unmatched.Key + " " + i.unmatched.Below
	case i.limit != nil:
		text = i.limit.Rule + " " + i.limit.Limit + " " + i.limit.Name
	case i.bucket != nil:
		text = "#" + i.bucket.Hash + " " + i.bucket.Descriptor + " " + i.bucket.Rule
	case i.event != nil:
		text = i.event.Text + telemetry.FieldsText(i.event.Fields)
	}
	return strings.Contains(strings.ToLower(i.domain+": "+text), filter)
}

// order is an order of keys and limits.
type order int

const (
	byDenials order = iota
	byHits
	byName
	orders
)

func (o order) String() string { return [...]string{"denials", "hits", "name"}[o] }

// section is a part of the list.
type section struct {
	title string
	items []item
	// parts is the part of the screen that the section may fill, in fifths, 0 for all.
	parts int
	// lines formats the first items, and may change the title.
	lines func(v *view, s *section, items []item) (perItem [][]line)
	// note is a line after the items, and about a part of the heading.
	note, about string
}

// sections returns the lists of a state. Conditions come first, then denied keys.
func sections(s *live.State, o order) []section {
	var keys, unmatched, past, limits, buckets []item
	for i := range s.Domains {
		d := &s.Domains[i]
		for j := range d.DeniedKeys {
			keys = append(keys, item{domain: d.Domain, key: &d.DeniedKeys[j]})
		}
		for j := range d.Unmatched {
			unmatched = append(unmatched, item{domain: d.Domain, unmatched: &d.Unmatched[j]})
		}
		for j := range d.Rules {
			limits = append(limits, item{domain: d.Domain, limit: &d.Rules[j]})
		}
	}
	unknown := []item{}
	for i := range s.UnknownDomains {
		u := &s.UnknownDomains[i]
		if u.PerSecond > 0 {
			unknown = append(unknown, item{domain: u.Domain, unknown: u})
		} else {
			past = append(past, item{domain: u.Domain, unknown: u})
		}
	}
	note := ""
	if q := s.Quota; q != nil {
		for i := range q.Largest {
			buckets = append(buckets, item{domain: q.Largest[i].Domain, bucket: &q.Largest[i]})
		}
		if q.Streams == 0 {
			buckets, note = nil, "no Envoy is connected"
		} else if more := q.Buckets - len(q.Largest); more > 0 {
			note = fmt.Sprintf("%d others", more)
		}
	}
	sortItems(keys, limits, o)
	return []section{
		{"CONDITIONS", itemsOf(s.Conditions, func(c *telemetry.Condition) item { return item{condition: c} }), 2, conditionLines, "", ""},
		{"KEY", keys, 2, keyLines, "", "share of domain's denials"},
		{"NO RULE MATCHES", slices.Concat(unknown, unmatched, past), 1, unmatchedLines, "", ""},
		{"LIMIT", limits, 2, limitLines, "", ""},
		{"DIVIDED LIMIT", buckets, 2, bucketLines, note, ""},
		{"EVENTS", itemsOf(s.Events, func(e *telemetry.Event) item { return item{event: e} }), 0, eventLines, "", ""},
	}
}

func itemsOf[T any](all []T, toItem func(*T) item) []item {
	items := make([]item, len(all))
	for i := range all {
		items[i] = toItem(&all[i])
	}
	return items
}

func sortItems(keys, limits []item, o order) {
	slices.SortStableFunc(keys, func(a, b item) int {
		byRate := live.CompareKeys(*a.key, *b.key)
		switch o {
		case byName:
			return cmp.Or(cmp.Compare(a.domain, b.domain), byRate)
		case byHits:
			return cmp.Or(cmp.Compare(b.key.Denied, a.key.Denied), byRate)
		default:
			return byRate
		}
	})
	slices.SortStableFunc(limits, func(a, b item) int {
		byUnit := live.CompareRules(live.RuleState{Unit: a.limit.Unit}, live.RuleState{Unit: b.limit.Unit})
		switch o {
		case byName:
			return cmp.Or(byUnit, cmp.Compare(a.domain, b.domain), cmp.Compare(a.limit.Rule, b.limit.Rule))
		case byHits:
			return cmp.Or(byUnit, cmp.Compare(b.limit.Hits, a.limit.Hits))
		default:
			return live.CompareRules(*a.limit, *b.limit)
		}
	})
}

func conditionLines(v *view, _ *section, items []item) (all [][]line) {
	for _, i := range items {
		c := i.condition
		tone := map[string]tone{"error": red, "warning": yellow}[c.Severity]
		lines := v.wrap(tone, format.Time(c.Since)+" ! ", fmt.Sprintf("%s%s [%s]%s", replicaPrefix(c.Replica), c.Text, c.Code, telemetry.FieldsText(c.Fields)), 3)
		for _, text := range c.Lines {
			lines = append(lines, v.wrap(plain, "           ", text, 3)...)
		}
		all = append(all, append(lines, v.wrap(plain, "           ", "remedy: "+c.Remedy, 2)...))
	}
	return all
}

// perLine turns the lines of a table into those of its items.
func perLine(s *section, heading string, lines []line) (all [][]line) {
	s.title = heading
	for i := range lines {
		all = append(all, lines[i:i+1])
	}
	return all
}

func keyLines(v *view, s *section, items []item) [][]line {
	rows := make([]tableRow, len(items))
	for n, i := range items {
		k := i.key
		rows[n] = tableRow{
			yellow,
			[]string{format.Rate(k.PerSecond), fmt.Sprintf("%.0f%%", 100*k.Share), strconv.FormatUint(k.Denied, 10), format.Time(k.Since)},
			func(columns int) string { return v.key(i.domain, k, columns) },
		}
		if k.PerSecond == 0 {
			rows[n].tone = faint
		}
	}
	heading, lines := v.table([]column{{"DENIED/S", 8}, {"SHARE", 5}, {"DENIED", 8}, {"SINCE", 8}}, s.title, rows)
	return perLine(s, heading, lines)
}

// clientOf returns the client of a key, or "" if the rule is for this client only.
func clientOf(k *live.Key) string {
	switch k.Descriptor {
	case "":
		return "#" + k.Hash
	case k.Rule:
		return ""
	default:
		return k.Descriptor
	}
}

// limitOf returns the limit that applies to a key, and its state.
func limitOf(domain string, k *live.Key) string {
	text := domain + ": "
	switch {
	case k.OwnLimit != "" && k.Table != "":
		text += k.Rule + " " + k.OwnLimit + ", from table " + k.Table
	case k.Rule == "":
		text += "limit override of the request"
	default:
		text += k.Rule + " " + k.Limit
	}
	text += unitSuffix(k.Unit)
	if k.InFlight != nil {
		text += fmt.Sprintf(", %d of %d in flight", *k.InFlight, k.Permits)
	}
	return text
}

// unitSuffix labels limits of anything but requests.
func unitSuffix(unit string) string {
	if unit == "" || unit == "requests" {
		return ""
	}
	return " (" + unit + ")"
}

// key returns the client and the limit of a key for the given number of columns. If both do not
// fit, it truncates the client's descriptor, to at least 16 columns.
func (v *view) key(domain string, k *live.Key, columns int) string {
	rest := "  " + limitOf(domain, k)
	if k.PenaltyUntil != nil {
		rest = " until " + format.Time(*k.PenaltyUntil) + rest
	}
	name := clientOf(k)
	switch {
	case name == "":
		return strings.TrimLeft(rest, " ")
	case k.Descriptor == "":
		return name + rest
	default:
		return v.truncate(v.printable(name), max(16, columns-ansi.StringWidth(v.printable(rest)))) + rest
	}
}

func unmatchedLines(v *view, _ *section, items []item) (all [][]line) {
	for _, i := range items {
		if u := i.unknown; u != nil {
			about := fmt.Sprintf("the domain %s, which has no rules", u.Domain)
			if u.Meant != "" {
				about += "; did you mean " + u.Meant + "?"
			}
			if u.PerSecond > 0 {
				all = append(all, v.wrap(yellow, "  ", fmt.Sprintf("%s per second for %s", format.Rate(u.PerSecond), about), 2))
			} else { // no longer requested
				all = append(all, v.wrap(faint, "  ", fmt.Sprintf("none now, %d before, for %s", u.Descriptors, about), 2))
			}
			continue
		}
		u := i.unmatched
		text := fmt.Sprintf("%s, seen %d, last %s: ", i.domain, u.Seen, format.Time(u.Last))
		// The positions of rules are long and may be truncated, so the suggestion comes first.
		if why, ok := strings.CutSuffix(u.Why, rules.DidYouMean([]string{u.Meant})); ok && u.Meant != "" {
			text += fmt.Sprintf("did you mean %q? %s", u.Meant, why)
		} else {
			text += u.Why
		}
		all = append(all, v.wrap(plain, "  ", text, 3))
	}
	return all
}

func limitLines(v *view, s *section, items []item) [][]line {
	rows := make([]tableRow, len(items))
	for n, i := range items {
		r := i.limit
		text := i.domain + ": " + r.Rule + " " + r.Limit + unitSuffix(r.Unit)
		if r.Shadow {
			text += fmt.Sprintf(" (shadow, would deny %s/s)", format.Rate(r.Rate.Shadow))
		}
		var hits []uint32
		if r.Line != nil {
			hits = r.Line.Hits
		}
		rows[n] = tableRow{plain, []string{format.Rate(r.Hits), format.Rate(r.Denied), v.sparkline(hits, 15)}, func(int) string { return text }}
	}
	heading, lines := v.table([]column{{"HITS/S", 8}, {"DENIED/S", 8}, {"LAST 5 MINUTES", 15}}, s.title, rows)
	return perLine(s, heading, lines)
}

// bucketLines returns the limits that are divided among Envoys, each followed by its shares.
func bucketLines(v *view, s *section, items []item) (all [][]line) {
	rows := make([]tableRow, len(items))
	for n, i := range items {
		b := i.bucket
		name := b.Descriptor
		if name == "" && b.Hash != "" {
			name = "#" + b.Hash
		}
		text := fmt.Sprintf("%s%s: %s %s", replicaPrefix(b.Replica), b.Domain, b.Rule, name)
		rows[n] = tableRow{plain, []string{format.Rate(b.DemandRate), format.Rate(b.Assigned), format.Rate(b.LimitRate)}, func(int) string { return text }}
	}
	heading, lines := v.table([]column{{"DEMAND/S", 8}, {"ASSIGNED", 8}, {"OF LIMIT", 8}}, s.title, rows)
	all = perLine(s, heading, lines)
	for n, i := range items {
		all[n] = append(slices.Clip(all[n]), v.wrap(faint, "           ", format.Shares(i.bucket, 4), 3)...)
	}
	return all
}

func eventLines(v *view, _ *section, items []item) (all [][]line) {
	for _, i := range items {
		e := i.event
		text := replicaPrefix(e.Replica) + e.Text + codeSuffix(e) + telemetry.FieldsText(e.Fields)
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		if len(e.Lines) > 0 {
			text += "; " + e.Lines[0]
		}
		all = append(all, v.wrap(map[string]tone{"error": red, "warning": yellow}[e.Level], format.Time(e.Time)+"   ", text, 3))
	}
	return all
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

func replicaPrefix(replica string) string {
	if replica == "" {
		return ""
	}
	return replica + ": "
}
