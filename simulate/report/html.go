package report

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"strings"
	"sync"
	"time"
)

//go:embed report.html
var reportHTML string

// page is parsed on first use, because most commands write no page.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"start":       func() template.HTML { return Start }, // a comment in the template would be removed
		"thousands":   func(n any) string { return thousands(toUint(n)) },
		"percent":     func(part, whole any) string { return percent(toUint(part), toUint(whole)) },
		"ratio":       ratio,
		"headline":    (*Report).headline,
		"subject":     (*Report).subject,
		"notes":       (*Report).notes,
		"advice":      func(r *Report) string { return strings.TrimSuffix(r.recommendedText(), ":") },
		"outcomes":    (*Report).outcomes,
		"shown":       (*Outcome).shown,
		"left":        func(o *Outcome) int { return len(o.Limits) - len(o.shown()) },
		"unused":      (*Outcome).unused,
		"title":       (*Limit).Title,
		"recommended": (*Recommendation).text,
		"width":       (*Outcome).width,
		"most":        (*Limit).mostHits,
		"endOf":       (*Outcome).end,
		"worst":       (*Outcome).worst,
		"timeline":    timelineBars,
	}).Parse(reportHTML))
})

// Start is the start of a page, by which an earlier report is recognised.
const Start = "<!doctype html><!-- sluice simulate -->"

// WriteHTML writes the report as a self-contained page without scripts, which can be printed.
func (r *Report) WriteHTML(w io.Writer) error { return page().Execute(w, r) }

// subject names the logs and the rules.
func (r *Report) subject() string {
	logs := "the log"
	if len(r.Logs) > 0 {
		logs = r.Logs[0]
	}
	if n := len(r.Logs) - 1; n > 0 {
		logs += " and " + counted(uint64(n), "other")
	}
	return logs + " by " + cmp.Or(r.Rules.Name, "the rules")
}

// titledOutcome is a section of the page.
type titledOutcome struct {
	Title string
	*Outcome
}

// outcomes returns the sections of the page.
func (r *Report) outcomes() []titledOutcome {
	all := []titledOutcome{{cmp.Or(r.Rules.Name, "The rules"), &r.Rules}}
	for i := range r.Against {
		c := &r.Against[i]
		all = append(all, titledOutcome{"Against " + c.Name, &c.Outcome})
	}
	return all
}

// width returns the length of a bin.
func (o *Outcome) width() time.Duration { return time.Duration(o.BinSeconds) * time.Second }

// bar is a bar of a diagram. Admitted and Over are the heights of its parts, in percent of the
// diagram's.
type bar struct{ Admitted, Over float64 }

// timelineBars returns a bar for the hits of each bin.
func timelineBars(l *Limit) (all []bar) {
	most := float64(max(1, l.mostHits()))
	for _, b := range l.Timeline {
		all = append(all, bar{Admitted: height(float64(b.Hits-b.Over) / most), Over: height(float64(b.Over) / most)})
	}
	return all
}

// height returns a share as a rounded percentage.
func height(share float64) float64 { return math.Round(1000*share) / 10 }

// mostHits returns the hits of the largest bin.
func (l *Limit) mostHits() (most uint64) {
	for _, b := range l.Timeline {
		most = max(most, b.Hits)
	}
	return most
}

// end returns the end of a limit's timeline.
func (o *Outcome) end(l *Limit) time.Time {
	return o.BinStart.Add(time.Duration(len(l.Timeline)) * o.width())
}
