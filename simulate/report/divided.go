package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// writeDivided writes how Envoys that divide limits compare with one counter.
func (r *Report) writeDivided(b *strings.Builder) {
	d := r.Divided
	if d == nil {
		return
	}
	fmt.Fprintf(b, "\n%s\n", d.text())
	if len(d.Divided) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "divided limit\trequests\tone counter admits\t\t%s\n", d.envoysTitle())
	for i := range d.shown() {
		l := &d.Divided[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Title(), thousands(l.Requests),
			thousands(l.Counter), percent(l.Counter, l.Requests), thousands(l.Envoys), percent(l.Envoys, l.Requests))
	}
	_ = t.Flush() // cannot fail
	if n := len(d.Divided) - len(d.shown()); n > 0 {
		fmt.Fprintf(b, "and %s; --output json lists them\n", counted(uint64(n), "more limit"))
	}
}

// text summarizes how Envoys differ from one counter.
func (d *Division) text() string {
	text := fmt.Sprintf("divided among %s: %s more denied than by one counter, %s fewer", counted(toUint(d.Envoys), "Envoy"), thousands(d.More), thousands(d.Fewer))
	switch {
	case len(d.Divided) == 0:
		return text + "; no requests for a divided limit"
	case d.WithoutShare > 0:
		text += fmt.Sprintf("; %s admitted before a share was assigned", counted(d.WithoutShare, "request"))
	}
	return text
}

// envoysTitle is the title of the column of hits that Envoys admit.
func (d *Division) envoysTitle() string {
	if d.Envoys == 1 {
		return "1 Envoy admits"
	}
	return fmt.Sprintf("%d Envoys admit", d.Envoys)
}

// shown returns the limits that the text and the page show.
func (d *Division) shown() []Divided { return d.Divided[:min(len(d.Divided), shownLimits)] }

// Title returns the limit with its rule.
func (l *Divided) Title() string {
	return (&Limit{Rule: l.Rule, Name: l.Name, Limit: l.Limit}).Title()
}
