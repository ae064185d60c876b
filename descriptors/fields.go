package descriptors

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// [Set.Dump], [Set.Changes], [Explanation.String] and [Limit.String] share the functions of this
// file. They write each field as `, name: value`, in the syntax of rule files, and leave out fields
// with their default value.

// String returns the limit as its rate and fields, such as `60/minute, algorithm: token_bucket,
// burst: 60`.
func (l *Limit) String() string { return l.text(false) }

// text is String. With explicit it includes algorithm, and count_refused if true, even if they are
// the defaults.
func (l *Limit) text(explicit bool) string {
	if l.Rule != nil && l.Rule.Unlimited {
		return "unlimited"
	}
	return l.numbers(explicit) + l.fields(explicit)
}

// numbers returns the part of text that a table's row can change.
func (l *Limit) numbers(explicit bool) string {
	if !l.HasWindow() {
		return fmt.Sprintf("%s, each for at most %s",
			rules.Count(int(l.RequestsPerUnit), "concurrent request"), rules.WindowText(l.Unit, l.UnitMultiplier))
	}
	return rate(l) + l.policyFields(explicit)
}

func (l *Limit) policyFields(explicit bool) string {
	return rules.AlgorithmFields(&l.Policy, explicit) + rules.CalendarFields(l.Policy.Calendar)
}

// fields returns the fields of the limit besides those of numbers and its name.
func (l *Limit) fields(explicit bool) (text string) {
	if r := l.Rule; r != nil {
		counts := l.Policy.CountRefused
		if explicit && counts || counts != r.domain.countsRefused(l.Policy.Algorithm, len(r.Limits), l.Soft) {
			text += fmt.Sprintf(", count_refused: %t", counts)
		}
		text += rules.BlocksField(l.Policy.NoBlocks && !r.choice && l.counter == nil) // the NoBlocks of an override is not from a rule
	}
	if l.Reservation != nil {
		text += ", " + l.Reservation.reserve.String()
	}
	if l.Policy.Penalty != nil {
		text += ", " + rules.PenaltyText(l.Policy.Penalty.Steps())
	}
	if l.Hidden {
		text += ", hidden: true"
	}
	text += rules.SoftFields(l.Soft, &l.NotifyAt)
	if l.Table != nil {
		text += ", table: " + l.Table.Name()
	}
	if l.counter != nil {
		text += fmt.Sprintf(", counter: %q", l.counter.name)
	}
	return text
}

func (l *Limit) nameField() string {
	if l.Name == "" {
		return ""
	}
	return fmt.Sprintf(", name: %q", l.Name)
}

func (l *Limit) shadowField() string {
	if !l.Candidate || l.Soft {
		return ""
	}
	return ", shadow: true"
}

// fields returns the fields of the rule besides those of its limits.
func (r *Rule) fields() (text string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"shadow_mode", r.Shadow},
		{"quota_mode", r.Quota},
		{"share_threshold", r.optionalOrZero().shared != nil},
		{"detailed_metric", r.detailedMetric},
		{"value_to_metric", r.valueToMetric()},
	} {
		if f.set {
			text = strings.Join([]string{text, f.name + ": true"}, ", ")
		}
	}
	text += r.choiceField() + r.setFields()
	if names := r.optionalOrZero().replacedNames; names != nil {
		text += ", replaces: [" + strings.Join(names, ", ") + "]"
	}
	if q := r.Divided(); q != nil {
		text += ", " + q.String()
	}
	if m := r.Metadata(); m != nil {
		text += ", metadata: " + metadataText(m)
	}
	return text + r.deniedField()
}

func (r *Rule) deniedField() string {
	if d := r.optionalOrZero().denied; d != nil {
		return ", denied_response: " + d.String()
	}
	return ""
}

// setFields returns what the paths of sets lack: the number of ranges in a file, and prefix.
func (r *Rule) setFields() string {
	var b strings.Builder
	for _, n := range r.node.lineage() {
		if n.set != nil && n.set.file {
			fmt.Fprintf(&b, ", ranges: %d", n.set.count)
		}
		if n.set != nil && n.set.prefix != singleAddresses {
			fmt.Fprintf(&b, ", prefix: { v4: %d, v6: %d }", n.set.prefix.V4, n.set.prefix.V6)
		}
	}
	return b.String()
}

// valueToMetric reports whether the rule or a descriptor above it has value_to_metric.
func (r *Rule) valueToMetric() bool {
	for n := r.node; n != nil; n = n.parent {
		if n.valueToMetric {
			return true
		}
	}
	return false
}

func (d *domain) fields() (text string) {
	if d.allOrNothing {
		text += ", all_or_nothing: true"
	}
	if d.maxCounters > 0 {
		text += fmt.Sprintf(", max_counters: %d", d.maxCounters)
	}
	if d.denied != nil {
		text += ", denied_response: " + d.denied.String()
	}
	return text + d.exemptField()
}

// metadataText returns metadata as JSON with sorted keys.
func metadataText(metadata map[string]any) string {
	text, err := json.Marshal(metadata)
	if err != nil {
		return fmt.Sprint(metadata) // JSON has no infinity; Sprint sorts the keys, too
	}
	return string(text)
}

// rate returns a limit as 60/minute or 60/10minute.
func rate(l *Limit) string {
	text := strconv.FormatUint(uint64(l.RequestsPerUnit), 10) + "/"
	if l.UnitMultiplier > 1 {
		text += strconv.FormatUint(uint64(l.UnitMultiplier), 10)
	}
	return text + l.Unit.String()
}
