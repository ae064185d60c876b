package descriptors

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// labelLimits sets the metric labels of the limits of a list: the name, or else the rate. Rate and
// algorithm are appended to equal labels if they differ, and a number otherwise.
func labelLimits(limits []*Limit) {
	for _, l := range limits {
		l.Label = l.Name
		if l.Name == "" {
			l.Label = rate(l)
		}
		if l.Candidate && !l.Soft {
			l.Label += " shadow"
		}
	}
	disambiguate(limits, func(l *Limit) string {
		if l.Name == "" {
			return ""
		}
		return " " + rate(l)
	})
	disambiguate(limits, func(l *Limit) string { return " " + rules.AlgorithmName(l.Policy.Algorithm) })
	has := func(limits []*Limit, label string) bool {
		return slices.ContainsFunc(limits, func(l *Limit) bool { return l.Label == label })
	}
	for i, l := range limits {
		label := l.Label
		for n := i + 1; has(limits[:i], label) || label != l.Label && has(limits, label); n++ {
			label = l.Label + " #" + strconv.Itoa(n)
		}
		l.Label = label
	}
}

// rowSeparator separates the label of a limit in a list from the name of a row.
const rowSeparator = ": "

// checkLabels reports an error if the name of a row could give a limit of a list the label of
// another limit.
func (c *compiler) checkLabels(d *domain, n *node, limits []*Limit) {
	for _, l := range limits {
		if l.Table == nil {
			continue
		}
		for i, other := range limits {
			if row, ok := strings.CutPrefix(other.Label, l.Label+rowSeparator); ok {
				c.fail(other.Pos, limitPath(d, n, true, i),
					"a row %q of table %q could have the label %q of this limit in metrics, since the limit at %s has the label %q; give one of the two another name",
					rules.Shorten(row), l.Table.Name(), rules.Shorten(other.Label), l.Pos, rules.Shorten(l.Label))
			}
		}
	}
}

// disambiguate appends more(l) to equal labels if it differs between their limits.
func disambiguate(limits []*Limit, more func(l *Limit) string) {
	first := map[string]string{}
	differ := map[string]bool{}
	for _, l := range limits {
		if text, ok := first[l.Label]; !ok {
			first[l.Label] = more(l)
		} else if text != more(l) {
			differ[l.Label] = true
		}
	}
	for _, l := range limits {
		if differ[l.Label] {
			l.Label += more(l)
		}
	}
}
