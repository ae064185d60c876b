package top

import (
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// notice is a message to the user. If confirm is not nil, it is a question, and confirm is the
// command for the answer yes.
type notice struct {
	text    string
	failed  bool
	confirm tea.Cmd
}

// yes ends questions.
const yes = " Press y to confirm, or another key."

// unmaskTime is how long the key u shows values of denied keys.
const unmaskTime = 10 * time.Minute

// askUnmask asks whether to show the values of denied keys.
func (m *model) askUnmask() *notice {
	return &notice{text: "Show the values of the keys that are denied in the next 10 minutes, such as user=alice, to all clients of the debug listener?" + yes, confirm: func() tea.Msg {
		done, err := m.service.Unmask(m.ctx, unmaskTime)
		if err != nil {
			return notice{text: err.Error(), failed: true}
		}
		return notice{text: strings.Join(done, "; ")}
	}}
}

// target is the part of a reset that a replica does.
type target struct {
	*client.Debug

	which live.Selection
	token string
}

// previewReset asks each replica for a preview of the reset of a key, or of the denied keys of a
// limit, and then asks the user. It returns nil for other items.
func (m *model) previewReset(i item) tea.Cmd {
	which, subject := live.Selection{Domain: i.domain}, strings.TrimPrefix(i.client+"  "+i.text, "  ")
	switch {
	case i.limit != nil:
		which.Rule, subject = i.limit.Rule, "all denied keys of "+i.domain+": "+i.limit.Rule
	case i.key == nil:
		return nil
	}
	var targets []target
	for _, r := range m.snapshot.Replicas {
		if i.key != nil {
			which.Key = i.key.Hash
			if own, ok := m.view.find(r.State, i.id); ok {
				which.Key = own.key.Hash
			}
		}
		targets = append(targets, target{Debug: r.Debug, which: which})
	}
	shared := m.snapshot.Sum.Counters == "store"
	return func() tea.Msg {
		accepted, preview, err := m.reset(targets, shared)
		if err != nil {
			return notice{text: err.Error(), failed: true}
		}
		return notice{text: fmt.Sprintf("Reset %s? %s, %d used%s.%s", subject, rules.Count(preview.Counters, "counter"), preview.Used, format.NotReset(preview.NotReset), yes), confirm: func() tea.Msg {
			_, done, err := m.reset(accepted, shared)
			if err != nil {
				return notice{text: err.Error(), failed: true}
			}
			return notice{text: fmt.Sprintf("reset %s, %d were used%s", rules.Count(done.Counters, "counter"), done.Used, format.NotReset(done.NotReset))}
		}}
	}
}

// reset sends the requests of a reset: without tokens for previews, with them to reset. It returns
// the targets that accepted, with tokens, and the sum of their reports. Replicas that share the
// counters report the same ones. An error is returned if all fail: a replica that has not denied a
// key rejects its reset.
func (m *model) reset(targets []target, shared bool) (accepted []target, sum live.Reset, err error) {
	for _, t := range targets {
		report, failed := t.ResetDenied(m.ctx, t.which, t.token)
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("query %s: %w", t.Addr, failed))
			continue
		case shared:
			sum.Counters, sum.Used, sum.NotReset = max(sum.Counters, report.Counters), max(sum.Used, report.Used), max(sum.NotReset, report.NotReset)
		default:
			sum.Counters, sum.Used, sum.NotReset = sum.Counters+report.Counters, sum.Used+report.Used, sum.NotReset+report.NotReset
		}
		t.token = report.Token
		accepted = append(accepted, t)
	}
	if len(accepted) > 0 {
		err = nil
	}
	return accepted, sum, err
}
