package top

import (
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// reset is the message with the previews of a reset, or with its results.
type reset struct {
	// subject is the key or the limit, as shown.
	subject string
	// shared is true if the replicas share the counters.
	shared  bool
	targets []target
	reports []*live.Reset
	err     error
}

// target is a part of a reset: the keys of a replica.
type target struct {
	Replica

	which live.Selection
	token string
}

// previewReset asks each replica for a preview of the reset of an item, a key or a limit. It
// returns nil for other items.
func (m *model) previewReset(i item) tea.Cmd {
	r := reset{shared: m.snapshot.Sum.Counters == "store"}
	which := live.Selection{Domain: i.domain}
	switch {
	case i.key != nil:
		r.subject = m.view.key(i.domain, i.key, 1<<20)
	case i.limit != nil:
		which.Rule = i.limit.Rule
		r.subject = "all denied keys of " + i.domain + ": " + i.limit.Rule
	default:
		return nil
	}
	for _, replica := range m.snapshot.Replicas {
		if i.key != nil {
			which.Key = hashAt(replica.State, i.domain, i.key)
		}
		r.targets = append(r.targets, target{Replica: replica, which: which})
	}
	return m.request(r)
}

// hashAt returns the hash that a replica has for a key.
func hashAt(s *live.State, domain string, k *live.Key) string {
	for i := range s.Domains {
		for j := range s.Domains[i].DeniedKeys {
			if own := &s.Domains[i].DeniedKeys[j]; s.Domains[i].Domain == domain && sameKey(own, k) {
				return own.Hash
			}
		}
	}
	return k.Hash
}

// request sends the requests of a reset: without tokens for previews, with them to reset. Replicas
// that fail are omitted from the result.
func (m *model) request(r reset) tea.Cmd {
	return func() tea.Msg {
		done := reset{subject: r.subject, shared: r.shared}
		var errs []error
		for _, t := range r.targets {
			report, err := t.ResetDenied(m.ctx, t.which, t.token)
			if err != nil { // such as that this replica has not denied the key
				errs = append(errs, fmt.Errorf("query %s: %w", t.Addr, err))
				continue
			}
			t.token = report.Token
			done.targets, done.reports = append(done.targets, t), append(done.reports, report)
		}
		if len(done.reports) == 0 {
			done.err = errors.Join(errs...)
		}
		return done
	}
}

// question returns the question to confirm a reset, or the text about its result.
func (r *reset) question() (text string, asks bool) {
	if r.err != nil {
		return r.err.Error(), false
	}
	var counters, notReset int
	var used uint64
	for _, one := range r.reports {
		if r.shared { // all replicas report the same counters
			counters, used, notReset = max(counters, one.Counters), max(used, one.Used), max(notReset, one.NotReset)
		} else {
			counters, used, notReset = counters+one.Counters, used+one.Used, notReset+one.NotReset
		}
	}
	count := rules.Count(counters, "counter")
	if len(r.reports) == 0 || r.reports[0].Done {
		return fmt.Sprintf("reset %s, %d were used%s", count, used, format.NotReset(notReset)), false
	}
	return fmt.Sprintf("Reset %s? %s, %d used%s. Press y to reset, or another key.", r.subject, count, used, format.NotReset(notReset)), true
}
