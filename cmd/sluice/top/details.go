package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// details are the details of an item that the user has opened.
type details struct {
	item
	// gone is true if the last state does not have the item.
	gone bool
	// counters are the answers of the replicas about the item's counter.
	counters []string
}

// find returns the item of a state with the given name.
func find(s *live.State, name string) (item, bool) {
	for _, section := range sections(s, byDenials) {
		for _, i := range section.items {
			if i.name() == name {
				return i, true
			}
		}
	}
	return item{}, false
}

// explained is the message with answers about a counter.
type explained struct {
	name    string
	answers []string
}

// explain asks the replicas about the counter of a key. A key without the client's values, or with
// some of them, cannot be asked about.
func (m *model) explain(i item) tea.Cmd {
	if i.key == nil || i.key.Descriptor == "" || strings.HasSuffix(i.key.Descriptor, "…") {
		return nil
	}
	name, query, replicas := i.name(), client.CounterQuery{Domain: i.domain, Descriptor: i.key.Descriptor}, m.snapshot.Replicas
	if m.snapshot.Sum.Counters == "store" && len(replicas) > 0 {
		replicas = replicas[:1] // they share the counter
	}
	return func() tea.Msg {
		msg := explained{name: name}
		for _, r := range replicas {
			report, err := r.Counters(m.ctx, query)
			if err != nil {
				msg.answers = append(msg.answers, fmt.Sprintf("query %s: %v", r.Addr, err))
			} else {
				msg.answers = append(msg.answers, replicaPrefix(r.Addr)+"\n"+m.service.Explain(report, query))
			}
		}
		return msg
	}
}

// details formats the details of an item.
func (v *view) details(d *details, s *Snapshot) (lines []line) {
	fact := func(name, text string) {
		if text != "" {
			lines = append(lines, v.wrap(plain, fmt.Sprintf("%-12s", name), text, 20)...)
		}
	}
	at := func(t time.Time) string {
		if t.Local().Format(time.DateOnly) == s.Sum.Time.Local().Format(time.DateOnly) {
			return t.Local().Format("15:04:05 MST")
		}
		return t.Local().Format("2006-01-02 15:04:05 MST")
	}
	lines = append(lines, line{item: -1}) // after the header
	switch {
	case d.key != nil:
		k := d.key
		if client := clientOf(k); client != "" {
			fact("client", client)
		}
		fact("limit", limitOf(d.domain, k))
		limit := limitOfKey(s.Sum, d.domain, k)
		if limit != nil {
			fact("rule at", limit.At)
		}
		now := fmt.Sprintf("%s/s, %.0f%% of the domain's denials", format.Rate(k.PerSecond), 100*k.Share)
		if d.gone {
			now = "not in the last minute"
		}
		fact("denied", now)
		fact("in total", fmt.Sprintf("%d since %s, the last one at %s", k.Denied, at(k.Since), at(k.Last)))
		if k.PenaltyUntil != nil {
			fact("penalty", "until "+at(*k.PenaltyUntil))
		}
		fact("counter", "#"+k.Hash)
		if limit != nil {
			lines = append(lines, v.chart(limit, s.Sum.Time)...)
		}
		v.perReplica(s, fact, func(domain *live.DomainState) string {
			for i := range domain.DeniedKeys {
				if sameKey(&domain.DeniedKeys[i], k) {
					return format.Rate(domain.DeniedKeys[i].PerSecond) + " denied/s"
				}
			}
			return "no denials"
		}, d.domain)
		lines = append(lines, v.counters(d)...)
	case d.limit != nil:
		r := d.limit
		fact("limit", d.domain+": "+r.Rule+" "+r.Limit+unitSuffix(r.Unit))
		fact("rule at", r.At)
		fact("name", r.Name)
		fact("now", rates(r.Rate))
		fact("in total", fmt.Sprintf("%d %s, %d denied", r.TotalHits, r.Unit, r.TotalDenied))
		if r.Exceeded > 0 {
			fact("exceeded", fmt.Sprintf("%d hits while the store was unavailable", r.Exceeded))
		}
		lines = append(lines, v.chart(r, s.Sum.Time)...)
		v.perReplica(s, fact, func(domain *live.DomainState) string {
			for i := range domain.Rules {
				if o := (item{domain: d.domain, limit: &domain.Rules[i]}); o.name() == d.name() {
					return rates(o.limit.Rate)
				}
			}
			return "no hits"
		}, d.domain)
		lines = append(lines, line{item: -1}, v.line(strong, "MOST DENIED CLIENTS"))
		for i := range s.Sum.Domains {
			for _, k := range s.Sum.Domains[i].DeniedKeys {
				if s.Sum.Domains[i].Domain == d.domain && k.Rule == r.Rule && k.Limit == r.Limit {
					lines = append(lines, v.line(yellow, align([]column{{"", 8}}, []string{format.Rate(k.PerSecond)})+v.key(d.domain, &k, v.width-10)))
				}
			}
		}
	case d.condition != nil:
		c := d.condition
		fact("condition", string(c.Code)+", "+c.Severity)
		fact("since", at(c.Since))
		fact("replica", c.Replica)
		fact("problem", c.Text)
		fact("remedy", c.Remedy)
		fact("page", c.Docs)
		for _, name := range fields(c.Fields) {
			fact("", name)
		}
		for _, text := range c.Lines {
			fact("", text)
		}
	case d.unmatched != nil:
		fact("domain", d.domain)
		fact("problem", d.unmatched.Why)
		fact("seen", fmt.Sprintf("%d since %s, the last one at %s", d.unmatched.Seen, at(d.unmatched.Since), at(d.unmatched.Last)))
	case d.unknown != nil:
		fact("domain", d.domain)
		fact("problem", "the domain has no rules")
		fact("meant", d.unknown.Meant)
		fact("descriptors", fmt.Sprintf("%s/s, %d since startup", format.Rate(d.unknown.PerSecond), d.unknown.Descriptors))
	case d.bucket != nil:
		b := d.bucket
		fact("limit", b.Domain+": "+b.Rule+" "+b.Limit)
		fact("bucket", strings.TrimSpace(b.Descriptor+" #"+b.Hash))
		fact("replica", b.Replica)
		fact("rates", fmt.Sprintf("%s/s demanded, %s assigned of %s", format.Rate(b.DemandRate), format.Rate(b.Assigned), format.Rate(b.LimitRate)))
		fact("shares", format.Shares(b, live.MaxQuotaShares))
	case d.event != nil:
		e := d.event
		fact("event", e.Text+codeSuffix(e))
		fact("at", at(e.Time))
		fact("replica", e.Replica)
		for _, text := range append(fields(e.Fields), e.Lines...) {
			fact("", text)
		}
	}
	return lines
}

// fields returns the attributes of a log line.
func fields(all map[string]any) (texts []string) {
	for name, value := range all {
		texts = append(texts, fmt.Sprintf("%s=%v", name, value))
	}
	slices.Sort(texts)
	return texts
}

func rates(r live.Rate) string {
	text := fmt.Sprintf("%s hits/s, %s denied/s, %s near the limit/s", format.Rate(r.Hits), format.Rate(r.Denied), format.Rate(r.Near))
	if r.Shadow > 0 {
		text += fmt.Sprintf(", %s would be denied/s", format.Rate(r.Shadow))
	}
	return text
}

// limitOfKey returns the limit that denies a key, or nil if the state does not have it.
func limitOfKey(s *live.State, domain string, k *live.Key) *live.RuleState {
	for i := range s.Domains {
		if s.Domains[i].Domain != domain {
			continue
		}
		for j := range s.Domains[i].Rules {
			if r := &s.Domains[i].Rules[j]; r.Rule == k.Rule && r.Limit == k.Limit && r.Name == k.Name {
				return r
			}
		}
	}
	return nil
}

// sameKey reports whether keys of two replicas are the same: hashes may differ.
func sameKey(a, b *live.Key) bool {
	return a.Hash == b.Hash || a.Descriptor != "" && a.Descriptor == b.Descriptor && a.Rule == b.Rule && a.Limit == b.Limit
}

// perReplica adds a fact about each of several replicas.
func (v *view) perReplica(s *Snapshot, fact func(name, text string), text func(*live.DomainState) string, domain string) {
	if len(s.Replicas) < 2 {
		return
	}
	for i, r := range s.Replicas {
		name := ""
		if i == 0 {
			name = "replicas"
		}
		found := slices.IndexFunc(r.State.Domains, func(d live.DomainState) bool { return d.Domain == domain })
		if found < 0 {
			fact(name, r.Addr+": the domain has no rules")
		} else {
			fact(name, r.Addr+": "+text(&r.State.Domains[found]))
		}
	}
}

// chart draws the hits of a limit in the last five minutes.
func (v *view) chart(r *live.RuleState, now time.Time) []line {
	if r.Line == nil {
		return v.wrap(faint, "", "The chart begins ten seconds after the first hit of five minutes.", 2)
	}
	lines := []line{{item: -1}, v.line(strong, "LAST 5 MINUTES (of the limit, all clients)")}
	points := len(r.Line.Hits)
	for _, row := range []struct {
		name    string
		numbers []uint32
	}{{r.Unit, r.Line.Hits}, {"denied", r.Line.Denied}} {
		var sum uint64
		for _, n := range row.numbers {
			sum += uint64(n)
		}
		most := slices.Max(append(row.numbers, 0))
		lines = append(lines, v.line(plain, fmt.Sprintf("%-12s%s  %d, at most %d in %d s", row.name, v.sparkline(row.numbers, points), sum, most, r.Line.Seconds)))
	}
	start := now.Add(-time.Duration(points*r.Line.Seconds) * time.Second)
	axis := format.Time(start) + strings.Repeat(" ", max(1, points-16)) + format.Time(now)
	return append(lines, v.line(faint, strings.Repeat(" ", 12)+axis))
}

// counters returns the answers about the counter of a key.
func (v *view) counters(d *details) []line {
	lines := []line{{item: -1}, v.line(strong, "COUNTER (sluice explain)")}
	switch {
	case d.key.Descriptor == "":
		return append(lines, v.wrap(faint, "", "The state contains only the hash of the client. sluice explain --addr --descriptor shows the counter of a client that you know.", 3)...)
	case d.counters == nil:
		return append(lines, v.line(faint, "..."))
	}
	for _, answer := range d.counters {
		for text := range strings.Lines(answer) {
			lines = append(lines, v.wrap(plain, "", strings.TrimSpace(text), 5)...)
		}
	}
	return lines
}
