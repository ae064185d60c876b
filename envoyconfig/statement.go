package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Statement says what a configuration and its rules limit.
type Statement struct {
	// Rows has an element for each descriptor that routes send, each route that sends none, and each rule that no route
	// reaches.
	Rows []*Row
}

// Row is what a descriptor does on the routes that send it.
type Row struct {
	// Route names the first route that sends the descriptor, and Routes is the number of all. Both are zero for a rule
	// that no route reaches.
	Route  string
	Routes int
	Pos    rules.Pos
	Domain string
	// Entries are the entries, such as user=<x-user header>.
	Entries string
	Rules   []*descriptors.Rule
	// Asked is when Envoy asks the service: AskedAtStart, AskedAtEnd or NeverAsked.
	Asked string
	// Why is the reason why Envoy never asks, or why a route or a rule has no limit.
	Why string
	// Hits describes the hits, and Charges reports whether they can charge a counter.
	Hits    string
	Charges bool
	// Charged is how often one request charges the counter.
	Charged int
	// Conditions describe the requests for which Envoy sends the descriptor; none for all.
	Conditions []string
}

// Values of Row.Asked.
const (
	AskedAtStart = "start"
	AskedAtEnd   = "end"
	NeverAsked   = "never"
)

// Limits reports whether the row limits some requests: Envoy asks at the start, and a rule that enforces matches.
func (r *Row) Limits() bool {
	return r.Asked == AskedAtStart && slices.ContainsFunc(r.Rules, Enforces)
}

// String formats a row for people.
func (r *Row) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(r.Route, "no route"))
	if r.Routes > 1 {
		fmt.Fprintf(&b, " and %s", rules.Count(r.Routes-1, "other route"))
	}
	if r.Entries != "" {
		b.WriteString(": " + r.Entries)
	}
	switch n := len(r.Rules); {
	case n > 0:
		b.WriteString(" -> rule " + describeRule(r.Rules[0]))
		if n > 1 {
			fmt.Fprintf(&b, " and %s", rules.Count(n-1, "other rule"))
		}
	case r.Entries != "":
		b.WriteString(" -> no rule")
	}
	switch {
	case r.Entries == "" && len(r.Rules) == 0:
		b.WriteString(": not limited, since " + r.Why)
		return b.String()
	case r.Entries == "":
		b.WriteString(": " + r.Why)
		return b.String()
	case r.Asked == NeverAsked:
		b.WriteString(": never asked, since " + r.Why)
		return b.String()
	case r.Asked == AskedAtStart:
		b.WriteString(": asked at the start, ")
	default:
		b.WriteString(": charged at the end, ")
	}
	b.WriteString(r.Hits)
	switch {
	case len(r.Rules) == 0:
	case !r.Charges:
		b.WriteString(", charges nothing")
	case r.Charged == 1:
		b.WriteString(", charged once")
	case r.Charged > 1:
		fmt.Fprintf(&b, ", charged %d times", r.Charged)
	}
	if len(r.Conditions) > 0 {
		b.WriteString("; only requests " + strings.Join(r.Conditions, " and "))
	}
	return b.String()
}

// describeRule returns the path and the limits of a rule: user (60/minute).
func describeRule(r *descriptors.Rule) string {
	var limits []string
	for _, l := range r.Limits {
		limits = append(limits, l.String())
	}
	text := strings.Join(limits, ", ")
	if r.FirstWithRoom() {
		text = "the first with room of " + text
	}
	switch {
	case r.Unlimited:
		text = "unlimited"
	case r.Shadow:
		text += ", shadow mode"
	case len(limits) == 0:
		text = "soft limits only"
	}
	return fmt.Sprintf("%s (%s)", r.Path(), text)
}

// Enforces reports whether a rule can deny requests.
func Enforces(r *descriptors.Rule) bool {
	return !r.Unlimited && !r.Shadow && len(r.Limits) > 0 && r.Divided() == nil
}

// describe names the route by its virtual host and its name or path.
func (r *route) describe(h *virtualHost) string {
	match := r.node.Field("match")
	text := ""
	for _, name := range []string{"prefix", "path", "path_separated_prefix"} {
		if at := match.Field(name); at.Exists() {
			text = at.Text
		}
	}
	if at := match.At("safe_regex", "regex"); at.Exists() {
		text = "~" + at.Text
	}
	if name := r.node.Field("name").Text; name != "" {
		text = name
	}
	host := rules.Shorten(h.name)
	switch {
	case host == "" && text == "":
		return "each route"
	case text == "":
		return host + ", each route"
	case host == "":
		return "route " + rules.Shorten(text)
	}
	return host + ", route " + rules.Shorten(text)
}

// rowsKey identifies the rows of a list on the routes of a virtual host on which its descriptors do the same.
type rowsKey struct {
	list    *checkedList
	host    *virtualHost
	effects string
}

// stateRoute adds what a route sends to the statement. taken are the reasons why it does not send descriptors of a list.
func (k *checker) stateRoute(
	m *manager, h *virtualHost, r *route, all []*checkedList, taken map[*checkedList][]string, notCalled string,
) {
	for _, c := range all {
		others := map[string]int{}
		for _, other := range all {
			if other != c {
				for _, key := range k.sharedCounters(c, other) {
					others[key] += other.byCounter[key].n
				}
			}
		}
		key := rowsKey{c, h, fmt.Sprint(others, taken[c])}
		if rows := k.rows[key]; rows != nil {
			for _, row := range rows {
				row.Routes++
			}
			continue
		}
		for i, e := range c.all {
			row := &Row{
				Route: r.describe(h), Routes: 1, Pos: e.node.Pos(), Domain: c.domain, Entries: e.text(),
				Rules: c.reached[i].Rules, Hits: e.hits.text + e.limitText(), Charges: e.hits.charges, Charged: c.chargesOf(i, others),
			}
			k.fillRow(row, m, c, i)
			if taken[c] != nil && taken[c][i] != "" {
				row.Asked = NeverAsked
				row.Why = taken[c][i]
				row.Charged = 0
			}
			k.rows[key] = append(k.rows[key], row)
			k.statement.Rows = append(k.statement.Rows, row)
		}
	}
	if len(all) == 0 {
		k.stateUnlimited(h, r, cmp.Or(notCalled, "no rate_limits apply"))
	}
}

// stateUnlimited adds a route that sends nothing; one row for all of a virtual host with the same reason.
func (k *checker) stateUnlimited(h *virtualHost, r *route, why string) {
	key := unlimitedKey{h, why}
	if row := k.unlimited[key]; row != nil {
		row.Routes++
		return
	}
	row := &Row{Route: r.describe(h), Routes: 1, Pos: r.node.Pos(), Asked: NeverAsked, Why: why}
	k.unlimited[key] = row
	k.statement.Rows = append(k.statement.Rows, row)
}

type unlimitedKey struct {
	host *virtualHost
	why  string
}

// fillRow sets when Envoy asks, and for which requests.
func (k *checker) fillRow(row *Row, m *manager, c *checkedList, i int) {
	e := c.all[i]
	never, conditions := m.callsOf(c.limiter)
	never = cmp.Or(never, k.config.callFailure(c.limiter))
	row.Conditions = slices.Concat(conditions, e.conditions, k.needsOf(e, row.Rules).conditions)
	row.Asked = AskedAtStart
	row.Why = cmp.Or(never, e.never)
	switch {
	case row.Why != "":
		row.Asked = NeverAsked
	case e.streamDone:
		row.Asked = AskedAtEnd
	}
}

// callsOf returns why a filter never calls the service, and the requests for which it does.
func (m *manager) callsOf(f *filter) (never string, conditions []string) {
	if why, disabled := m.runtime.disabled(filterEnabled); !f.config.Field("filter_enabled").Exists() {
		switch {
		case disabled:
			never = why
		case why != "":
			conditions = append(conditions, "that "+strings.TrimPrefix(why, UnknownPrefix))
		}
	}
	for _, field := range []string{"filter_enabled", "filter_enforced"} {
		at := f.config.Field(field)
		switch p := m.runtime.percentOf(at); {
		case !at.Exists() || p.percent >= 100:
		case p.percent == 0:
			never = field + " is 0 %"
		default:
			conditions = append(conditions, fmt.Sprintf("in the %s %% of %s", p.text(), field))
		}
	}
	if f.matcher != nil {
		conditions = append(conditions, "that the matcher of the filter does not skip")
	}
	if kind := f.config.Field("request_type").Text; kind == "internal" || kind == "external" {
		conditions = append(conditions, "that are "+kind)
	}
	return never, conditions
}

// ruleUse is the use of a rule by policies. at is the first of them, and asked and charged are true if Envoy asks at the
// start by one of them, and if one charges hits.
type ruleUse struct {
	at             *evaluation
	asked, charged bool
}

// addUse adds a use to that of a key.
func addUse[K comparable](all map[K]*ruleUse, key K, u ruleUse) {
	o := all[key]
	if o == nil {
		all[key] = &u
		return
	}
	o.asked = o.asked || u.asked
	o.charged = o.charged || u.charged
	if comparePos(u.at.node.Pos(), o.at.node.Pos()) < 0 {
		o.at = u.at
	}
}

// reportIneffectiveRules reports rules that enforce but deny nothing: no policy asks about them at the start, or none
// charges them.
func (k *checker) reportIneffectiveRules() {
	uses := map[*descriptors.Rule]*ruleUse{}
	byReach := map[*descriptors.Reach]*ruleUse{}
	for _, c := range k.sent {
		for i, e := range c.all {
			addUse(byReach, c.reached[i], ruleUse{e, e.never == "" && !e.streamDone, e.never == "" && e.hits.charges})
		}
	}
	for reach, u := range byReach {
		for _, r := range reach.Rules {
			addUse(uses, r, *u)
		}
	}
	for r, u := range uses {
		severity := rules.Error
		if k.config.fragments != nil {
			severity = rules.Warning
		}
		switch {
		case !Enforces(r) || k.unknownDomains[r.Domain()] || u.at.never != "":
		case !u.asked:
			k.report(NeverDenies, severity,
				u.at.node.Pos(), "the limit of %s never denies a request: every element that "+
					"reaches it has apply_on_stream_done, so Envoy asks only after the response: add an element with the same "+
					"actions for the start, with hits_addend: { number: 0 }", r.Path())
		case !u.charged:
			k.report(NeverDenies, severity, u.at.node.Pos(), "the limit of %s never denies a request: no element that "+
				"reaches it charges hits (%s)", r.Path(), u.at.hits.text)
		}
	}
}
