package denials_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// model predicts replies from docs/denials.md, docs/headers.md, docs/rules.md and
// docs/algorithms.md.
type model struct {
	settings answer.Settings
	counters map[string]*counter
}

// call is a request for some rules of a document.
type call struct {
	doc   *document
	items []item
}

// item is a descriptor.
type item struct {
	rule  *rule // nil if none matches
	value string
	hits  int64
	// returns is a lease, granted is the time of its request and limit is its limit's index.
	returns, granted int64
	limit            int
}

// prediction is an expected reply, without leases.
type prediction struct {
	over     bool
	body     string
	json     bool              // compare the decoded body
	headers  map[string]string // names in lower case
	deniedBy string
	grpc     bool // unless the message is too long, there is a header grpc-status-details-bin
	wait     time.Duration
	never    bool     // the request has more hits than its limits ever admit
	leases   []string // names of granted leases
}

// decision is the decision of one limit.
type decision struct {
	*counter
	rule   *rule
	name   string
	doc    *document
	hits   int64
	denied bool
	wait   time.Duration
	never  bool // the limit never admits the hits
	// remaining and reset are those of the header RateLimit.
	remaining int64
	reset     time.Duration
}

// group is the decisions of limits that are charged together.
type group struct {
	rule   *rule
	limits []*decision
	denied bool
}

func (m *model) answer(now int64, c *call) *prediction {
	p := &prediction{headers: map[string]string{}}
	var groups []*group
	for _, i := range c.items {
		if i.returns != 0 {
			permits := &m.counters[key(c.doc, &i, i.limit)].hits
			if at := slices.Index(*permits, i.granted); at >= 0 {
				*permits = slices.Delete(*permits, at, at+1)
			}
		}
		if i.rule == nil || i.returns != 0 {
			groups = append(groups, &group{})
			continue
		}
		g := &group{rule: i.rule}
		for n, l := range i.rule.all() {
			if l.Unlimited || l.Candidate {
				continue
			}
			key := key(c.doc, &i, n)
			if m.counters[key] == nil {
				m.counters[key] = &counter{limit: l}
			}
			d := &decision{counter: m.counters[key], rule: i.rule, name: i.rule.name(l), doc: c.doc, hits: i.hits}
			if l.Algorithm == "concurrency" && i.hits != 1 && slices.ContainsFunc(i.rule.all(), func(l *limit) bool { return l.Algorithm != "concurrency" }) {
				d.hits = 0 // hits of the descriptor may be a cost, which acquires no permit
			}
			d.denied = !d.admits(now, d.hits)
			g.denied = g.denied || d.denied
			g.limits = append(g.limits, d)
		}
		groups = append(groups, g)
	}
	denying := m.denying(groups)
	p.over = len(denying) > 0
	returns := slices.ContainsFunc(c.items, func(i item) bool { return i.returns != 0 })
	for _, g := range groups {
		for _, d := range g.limits {
			switch {
			case !g.denied && (!p.over || !c.doc.AllOrNothing && !g.acquires()):
				d.charge(now, d.hits)
				if d.limit.Algorithm == "concurrency" && d.hits > 0 {
					p.leases = append(p.leases, d.limit.Name)
				}
			case d.limit.countsRefused(g.rule, c.doc):
				d.chargeDenied(now, d.hits)
			}
			d.remaining, d.reset = d.counter.remaining(now), d.counter.reset(now)
			if d.denied {
				d.wait = d.counter.wait(now, d.hits)
				d.remaining, d.reset = 0, d.wait
				d.never = d.limit.Algorithm != "concurrency" && d.limit.N > 0 && d.hits > d.limit.capacity()
			}
		}
	}
	if m.settings.ShadowMode {
		p.over = false
	}
	if m.settings.RateLimitHeaders == "structured" {
		m.addStructured(p, groups)
	}
	if p.over {
		m.deny(p, groups, denying, returns)
	}
	return p
}

func key(d *document, i *item, limit int) string {
	return fmt.Sprintf("%q %q %q %d", d.Domain, i.rule.Key, i.value, limit)
}

func (l *limit) countsRefused(r *rule, d *document) bool {
	if l.CountRefused != nil {
		return *l.CountRefused
	}
	return (l.Algorithm == "fixed_window" || l.Algorithm == "") && r.Limit != nil && !d.AllOrNothing
}

// denying returns the groups that deny the request.
func (m *model) denying(groups []*group) (all []*group) {
	quota := func(g *group) bool {
		return m.settings.QuotaMode && (g.rule == nil || !g.unlimited()) || g.rule != nil && g.rule.Quota && !g.unlimited()
	}
	quotaLeft := slices.ContainsFunc(groups, func(g *group) bool { return quota(g) && (!g.denied || g.rule.Shadow) })
	for _, g := range groups {
		if g.denied && !g.rule.Shadow && (!quota(g) || !quotaLeft) {
			all = append(all, g)
		}
	}
	return all
}

// acquires reports whether the group acquires a permit, which a denied request does not hold.
func (g *group) acquires() bool {
	return slices.ContainsFunc(g.limits, func(d *decision) bool { return d.hits > 0 && d.limit.Algorithm == "concurrency" })
}

// unlimited reports whether the rule has no limit; then it is not a quota, not even one that passes.
func (g *group) unlimited() bool { return g.rule.Limit != nil && g.rule.Limit.Unlimited }

// described returns the denying limit that the response describes: that of the last descriptor that
// is not a quota, or of the first if all are. In a list it is the one with the longest wait. Hidden
// limits are only described if no other limit denies.
func (m *model) described(denying []*group) (best *decision) {
	for _, g := range denying {
		d := g.longest(true)
		quota := m.settings.QuotaMode || g.rule.Quota
		switch {
		case best == nil, best.limit.Hidden && !d.limit.Hidden, best.limit.Hidden == d.limit.Hidden && !quota:
			best = d
		}
	}
	return best
}

// longest returns the denying limit with the longest wait, of the visible ones if there are any and
// only they are wanted.
func (g *group) longest(visible bool) (longest *decision) {
	for _, d := range g.limits {
		switch {
		case !d.denied:
		case longest == nil, visible && longest.limit.Hidden && !d.limit.Hidden:
			longest = d
		case visible && d.limit.Hidden && !longest.limit.Hidden:
		case d.wait > longest.wait:
			longest = d
		}
	}
	return longest
}

// name returns the name of a limit, or its rule as in metrics.
func (r *rule) name(l *limit) string {
	if l.Name != "" {
		return l.Name
	}
	name := r.Key
	if r.Value != "" {
		name += "_" + r.Value
	}
	if r.parent != "" {
		name = r.parent + "." + name
	}
	name = strings.NewReplacer(":", "_", "|", "_", "10.0.0.1", "10_0_0_1").Replace(name)
	if r.Limits != nil {
		name += fmt.Sprintf(" %d/%s", l.N, l.Unit)
	}
	return name
}

func (m *model) deny(p *prediction, groups, denying []*group, returns bool) {
	d := m.described(denying)
	if m.settings.DeniedBy {
		own := slices.IndexFunc(denying, func(g *group) bool { return slices.Contains(g.limits, d) })
		p.deniedBy = ascii(denying[own].longest(false).name)
	}
	var violated []string
	var quota *decision // the first quota to admit the request
	for _, g := range denying {
		for _, d := range g.limits {
			switch isQuota := m.settings.QuotaMode || g.rule.Quota; {
			case !d.denied:
			case !isQuota:
				p.wait, p.never = max(p.wait, d.wait), p.never || d.never
			case quota == nil || quota.never && !d.never || quota.never == d.never && d.wait < quota.wait:
				quota = d
			}
			if name := clean(d.name); d.denied && !d.limit.Hidden && !slices.Contains(violated, name) {
				violated = append(violated, name)
			}
		}
	}
	if quota != nil {
		p.wait, p.never = max(p.wait, quota.wait), p.never || quota.never
	}
	seconds := strconv.FormatInt(ceil(p.wait, time.Second), 10)
	if m.settings.RetryAfterHeader {
		p.headers["retry-after"] = seconds
	}
	if returns {
		return
	}
	var r response
	grpc := m.settings.GRPCDenials
	switch chosen := first(d.rule.Response, d.doc.Response, m.settings.DeniedResponse).(type) {
	case response:
		r, grpc = chosen, grpc || chosen.GRPC
		p.headers["retry-after"] = seconds
	case string:
		r = p.preset(chosen, seconds, violated)
	}
	values := map[string]string{"{domain}": clean(d.doc.Domain), "{retry_after}": seconds}
	if !d.limit.Hidden {
		w := d.limit.window() / int64(time.Second)
		if d.limit.Algorithm == "concurrency" {
			w = 0
		}
		for name, value := range map[string]int64{"{limit}": d.limit.N, "{window}": w, "{reset}": ceil(d.wait, time.Second)} {
			values[name] = strconv.FormatInt(value, 10)
		}
		values["{name}"] = clean(d.name)
	}
	p.json = strings.Contains(strings.ToLower(r.ContentType), "json")
	body, known := replace(r.Body, values, p.json)
	headers := map[string]string{}
	for name, text := range r.Headers {
		value, ok := replace(text, values, false)
		headers[strings.ToLower(name)], known = value, known && ok
	}
	if known {
		p.body = body
		maps.Copy(p.headers, headers)
		if body != "" && r.ContentType != "" {
			p.headers["content-type"] = r.ContentType
		}
	}
	if grpc {
		p.headers["grpc-status"] = "8"
		p.headers["grpc-retry-pushback-ms"] = strconv.FormatInt(ceil(p.wait, time.Millisecond), 10)
		if p.never || p.wait > time.Minute {
			p.headers["grpc-retry-pushback-ms"] = "-1"
		}
		p.grpc = true
	}
}

// preset returns a preset as a map, and adds its headers.
func (p *prediction) preset(name, seconds string, violated []string) (r response) {
	if name == "none" || name == "" {
		return r
	}
	p.headers["retry-after"] = seconds
	retry, pleaseRetry := "Try again in {retry_after} seconds.", "Please try again in {retry_after}s."
	if p.never {
		retry = "The request has more hits than it ever admits."
		pleaseRetry = retry
	}
	message := "Rate limit {name} reached. " + pleaseRetry
	switch name {
	case "text":
		return response{ContentType: "text/plain; charset=utf-8", Body: "Too many requests: the limit {name} is exceeded. " + retry + "\n"}
	case "problem":
		all, _ := json.Marshal(violated)
		text := strings.ReplaceAll(string(all), "{", `\u007b`) // a name is not a placeholder
		return response{ContentType: "application/problem+json", Body: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":"Request cannot be satisfied as assigned quota has been exceeded",
			"detail":"The limit {name} is exceeded. ` + retry + `","violated-policies":` + text + `}`}
	}
	p.headers["retry-after-ms"] = strconv.FormatInt(ceil(p.wait, time.Millisecond), 10)
	if p.never || p.wait > 120*time.Second {
		p.headers["x-should-retry"] = "false"
	}
	if name == "openai" {
		return response{ContentType: "application/json", Body: `{"error":{"message":"` + message + `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`}
	}
	return response{ContentType: "application/json", Body: `{"type":"error","error":{"type":"rate_limit_error","message":"` + message + `"}}`}
}

// first returns the first response that is set.
func first(all ...any) any {
	for _, r := range all {
		if r != nil && r != "" {
			return r
		}
	}
	return nil
}

var placeholder = regexp.MustCompile(`\{(name|domain|limit|window|reset|retry_after)\}`)

// replace replaces placeholders by values. It reports whether all values are known.
func replace(text string, values map[string]string, inJSON bool) (_ string, known bool) {
	known = true
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		value, ok := values[found]
		known = known && ok
		if inJSON {
			quoted, _ := json.Marshal(value)
			return string(quoted[1 : len(quoted)-1])
		}
		return value
	}), known
}

// clean returns a name as bodies contain it: at most 256 bytes without control characters and line
// separators.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, name)
	for len(name) > 256 {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// ceil returns a duration in units, rounded up and at least 1.
func ceil(d, unit time.Duration) int64 { return int64(max(1, (d+unit-1)/unit)) }
