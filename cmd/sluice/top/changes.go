package top

import (
	"errors"
	"fmt"
	"slices"
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

// question is the message with the answer of the replicas to a preview.
type question struct {
	notice

	// input is the number of inputs of the user before the preview. The question is dropped if
	// there were others: the next key would answer a question that the user has not read.
	input int
}

// yes ends questions.
const yes = " Press y to confirm, or another key."

// waiting is shown while replicas are asked.
const waiting = "asking..."

// unmaskTime is how long the key u shows values of denied keys.
const unmaskTime = 10 * time.Minute

// askUnmask asks whether to show the values of denied keys.
func (m *model) askUnmask() *notice {
	return &notice{text: "Show the values of the keys that are denied in the next 10 minutes, such as user=alice, to all clients of the debug listener?" + yes, confirm: func() tea.Msg {
		done, err := m.service.Unmask(m.ctx, unmaskTime)
		if err != nil {
			done = append(done, err.Error())
		}
		return notice{text: strings.Join(done, "; "), failed: err != nil}
	}}
}

// target is the part of a reset that a replica does.
type target struct {
	*client.Debug

	which live.Selection
	token string
}

// resetReport is the result of a step of a reset at all replicas.
type resetReport struct {
	live.Reset

	// accepted are the targets that accepted the step, with the tokens for the next.
	accepted []target
	// failed has the errors of the other replicas.
	failed []string
}

// previewReset asks each replica for a preview of the reset of a key, or of the denied keys of a
// limit, and then asks the user. It returns nil for other items.
func (m *model) previewReset(i item) tea.Cmd {
	which := live.Selection{Domain: i.domain}
	subject := strings.TrimPrefix(i.client+"  "+i.text, "  ")
	switch {
	case i.limit != nil:
		which.Rule = i.limit.Rule
		subject = "all denied keys of " + i.domain + ": " + i.limit.Rule
	case i.key == nil:
		return nil
	}
	var targets []target
	for _, r := range m.snapshot.Replicas {
		if i.key != nil {
			which.Key = i.key.Hash
			if own, ok := m.view.find(r.State, i); ok {
				which.Key = own.key.Hash
			}
		}
		targets = append(targets, target{Debug: r.Debug, which: which})
	}
	var missing []string
	for _, r := range m.snapshot.Missing {
		missing = append(missing, notResetAt(r.Addr, r.Err))
	}
	shared := m.snapshot.Sum.Counters == "store"
	input := m.input
	m.notice = &notice{text: waiting}
	return func() tea.Msg {
		preview := m.reset(targets, shared, missing)
		if len(preview.accepted) == 0 {
			return question{notice{text: strings.Join(preview.failed, "; "), failed: true}, input}
		}
		return question{notice{text: fmt.Sprintf("Reset %s? %s, %d used%s.%s", subject, rules.Count(preview.Counters, "counter"), preview.Used, format.NotReset(preview.NotReset)+preview.failures(), yes), confirm: func() tea.Msg {
			done := m.reset(preview.accepted, shared, preview.failed)
			if len(done.accepted) == 0 {
				return notice{text: strings.Join(done.failed, "; "), failed: true}
			}
			return notice{text: fmt.Sprintf("reset %s, %d were used%s", rules.Count(done.Counters, "counter"),
				done.Used, format.NotReset(done.NotReset)+done.failures()), failed: len(done.failed) > 0}
		}}, input}
	}
}

func notResetAt(addr string, err error) string { return fmt.Sprintf("not reset at %s: %v", addr, err) }

// failures formats the errors of replicas as the end of a text.
func (r *resetReport) failures() string {
	return strings.Join(append([]string{""}, r.failed...), "; ")
}

// reset sends the requests of a reset: without tokens for previews, with them to reset. It adds up
// the reports, except that replicas that share the counters report the same ones. failed has the
// errors of replicas that did not get as far as this step. A replica that has not denied a key does
// not find it, which is an error only if no replica does.
func (m *model) reset(targets []target, shared bool, failed []string) (all resetReport) {
	var notFound []string
	all.failed = slices.Clip(failed)
	for _, t := range targets {
		ctx, cancel := m.service.bound(m.ctx)
		report, err := t.ResetCounters(ctx, t.which, t.token)
		cancel()
		switch {
		case errors.Is(err, client.ErrNotFound):
			notFound = append(notFound, notResetAt(t.Addr, err))
			continue
		case err != nil:
			all.failed = append(all.failed, notResetAt(t.Addr, err))
			continue
		case shared:
			all.Counters = max(all.Counters, report.Counters)
			all.Used = max(all.Used, report.Used)
			all.NotReset = max(all.NotReset, report.NotReset)
		default:
			all.Counters += report.Counters
			all.Used += report.Used
			all.NotReset += report.NotReset
		}
		t.token = report.Token
		all.accepted = append(all.accepted, t)
	}
	if len(all.accepted) == 0 {
		all.failed = append(notFound, all.failed...)
	}
	return all
}
