package descriptors

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// labelLimits sets the metric labels of the limits of a list: the name, or else the rate. Of
// equal ones all but the first have their number in the list.
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
