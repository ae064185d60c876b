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

type details struct {
	item
	// gone is true if the last state does not have the item.
	gone bool
	// counters are the answers of the replicas about the counter of a key.
	counters []string
}

// explained is the message with answers about the counter of the item with the given id.
type explained struct {
	id      string
	answers []string
}

// explain asks the replicas about the counter of a key. It returns nil for other items, and for
// keys whose descriptor is unknown or cut. It also returns nil while the last answers about the key
// are outstanding.
func (m *model) explain(i item) tea.Cmd {
	if i.key == nil || i.key.Descriptor == "" || strings.HasSuffix(i.key.Descriptor, "…") || m.explaining == i.id {
		return nil
	}
	m.explaining = i.id
	query := client.CounterQuery{Domain: i.domain, Descriptor: i.key.Descriptor}
	replicas := m.snapshot.Replicas
	if m.snapshot.Sum.Counters == "store" {
		replicas = replicas[:min(1, len(replicas))] // they share the counter
	}
	return func() tea.Msg {
		msg := explained{id: i.id}
		for _, r := range replicas {
			report, err := r.Counters(m.ctx, query)
			if err != nil {
				msg.answers = append(msg.answers, fmt.Sprintf("query %s: %v", r.Addr, err))
			} else {
				text := m.service.Explain(report, query)
				msg.answers = append(msg.answers,
					strings.ReplaceAll(text, "\ncounter: ", "\ncounter: "+replicaPrefix(r.Addr)))
			}
		}
		return msg
	}
}

func (v *view) details(d *details, s *Snapshot) []line {
	lines := []line{{item: -1}}
	fact := func(name, text string) {
		if text != "" {
			lines = append(lines, v.wrap(plain, fmt.Sprintf("%-12s", name), text, 20)...)
		}
	}
	at := func(t time.Time) string { return format.TimeAt(t, s.Sum.Time) + t.Local().Format(" MST") }
	limit := d.limit
	if k := d.key; k != nil {
		limit = limitOfKey(s.Sum, d.domain, k)
		fact("counter", "#"+k.Hash)
	}
	fact("", d.text)
	if !d.at.IsZero() {
		fact("at", at(d.at))
	}
	for _, text := range d.more {
		fact("", text)
	}
	if limit != nil {
		fact("rule at", limit.At)
		fact("name", limit.Name)
	}
	if k := d.key; k != nil {
		now := fmt.Sprintf("%s/s, %.0f%% of the domain's denials", format.Rate(k.PerSecond), 100*k.Share)
		if d.gone {
			now = "no longer"
		}
		fact("denied", now)
		fact("in total", fmt.Sprintf("%d since %s, the last one at %s", k.Denied, at(k.Since), at(k.Last)))
		if k.PenaltyUntil != nil {
			fact("penalty", "until "+at(*k.PenaltyUntil))
		}
	} else if limit != nil {
		fact("now", fmt.Sprintf("%s %s/s, %s denied/s, %s near the limit/s", format.Rate(limit.Hits), limit.Unit,
			format.Rate(limit.Denied), format.Rate(limit.Near)))
		fact("in total", fmt.Sprintf("%d %s, %d denied, %d beyond the limit while the store was unavailable",
			limit.TotalHits, limit.Unit, limit.TotalDenied, limit.Exceeded))
	}
	if limit != nil {
		lines = append(lines, v.chart(limit, s.Sum.Time)...)
	}
	if d.key != nil {
		return append(lines, v.counters(d)...)
	}
	return lines
}

// limitOfKey returns the limit that denies a key, or nil if the state does not have it.
func limitOfKey(s *live.State, domain string, k *live.Key) *live.RuleState {
	for i := range s.Domains {
		for j := range s.Domains[i].Rules {
			if r := &s.Domains[i].Rules[j]; s.Domains[i].Domain == domain && r.Rule == k.Rule && r.Limit == k.Limit &&
				r.Name == k.Name {
				return r
			}
		}
	}
	return nil
}

// chart draws the hits of a limit in the last five minutes.
func (v *view) chart(r *live.RuleState, now time.Time) []line {
	if r.Line == nil {
		return v.wrap(faint, "", "The chart begins ten seconds after the first hit of five minutes.", 2)
	}
	lines := []line{{item: -1}, v.line(strong, "LAST 5 MINUTES (of the limit, all clients)")}
	points := len(r.Line.Hits)
	draw := func(name string, numbers []uint32) {
		var sum uint64
		for _, n := range numbers {
			sum += uint64(n)
		}
		lines = append(lines, v.line(plain, fmt.Sprintf("%-12s%s  %d, at most %d in %d s", name,
			v.sparkline(numbers, points), sum, slices.Max(append(numbers, 0)), r.Line.Seconds)))
	}
	draw(r.Unit, r.Line.Hits)
	draw("denied", r.Line.Denied)
	start := now.Add(-time.Duration(points*r.Line.Seconds) * time.Second)
	axis := format.Time(start) + strings.Repeat(" ", max(1, points-16)) + format.Time(now)
	return append(lines, v.line(faint, strings.Repeat(" ", 12)+axis))
}

// counters returns the answers about the counter of a key.
func (v *view) counters(d *details) []line {
	lines := []line{{item: -1}, v.line(strong, "COUNTER (sluice explain)")}
	switch {
	case d.key.Descriptor == "":
		return append(lines, v.wrap(faint, "", "The state contains only the hash of the client. sluice top --unmask 10m shows the values of clients from their next denial on, and sluice explain --addr --descriptor the counter of a client that you know.", 3)...)
	case d.counters == nil:
		return append(lines, v.line(faint, "..."))
	}
	var steps []line // steps of the explanation, which follow the counters
	for _, answer := range d.counters {
		for text := range strings.Lines(answer) {
			wrapped := v.wrap(plain, "", strings.TrimSpace(text), 5)
			if strings.HasPrefix(text, "counter: ") {
				lines = append(lines, wrapped...)
			} else {
				steps = append(steps, wrapped...)
			}
		}
	}
	return append(lines, steps...)
}
