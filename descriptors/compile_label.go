package descriptors

import (
	"slices"
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// label gives each limit of a list a label of its own for metrics: its name, else its
// rate. Equal names get the rate behind them, equal rates the algorithm.
func label(limits []*Limit) {
	for _, l := range limits {
		l.Label = l.Name
		if l.Name == "" {
			l.Label = rate(l)
		}
		if l.Candidate {
			l.Label += " shadow"
		}
	}
	tellApart(limits, func(l *Limit) string {
		if l.Name == "" {
			return ""
		}
		return " " + rate(l)
	})
	tellApart(limits, func(l *Limit) string { return " " + rules.AlgorithmName(l.Policy.Algorithm) })
	for i, l := range limits {
		if slices.ContainsFunc(limits[:i], func(other *Limit) bool { return other.Label == l.Label }) {
			l.Label += " #" + strconv.Itoa(i+1)
		}
	}
}

// tellApart adds what more returns to equal labels if it differs between them.
func tellApart(limits []*Limit, more func(l *Limit) string) {
	first, differ := map[string]string{}, map[string]bool{}
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
