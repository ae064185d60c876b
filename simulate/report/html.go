package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed report.html
var reportHTML string

// page is parsed on first use, because most commands write no page.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"thousands":   func(n any) string { return thousands(toUint(n)) },
		"percent":     func(part, whole any) string { return percent(toUint(part), toUint(whole)) },
		"ratio":       ratio,
		"moreKeys":    moreKeys,
		"headline":    (*Report).headline,
		"subject":     (*Report).subject,
		"keysOf":      func(title string, keys []Key) any { return titledKeys{title, keys} },
		"diagramOf":   func(title, class string, bars []bar) any { return diagram{title, class, bars} },
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
		"timeline":    timelineBars,
		"histogram":   histogramBars,
	}).Parse(reportHTML))
})

// Start is the start of a page.
const Start = "<!doctype html>"

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

// titledOutcome is a section of the page. Change is the difference from the rules, or nil.
type titledOutcome struct {
	Title string
	*Outcome

	Change *Comparison
}

type titledKeys struct {
	Title string
	Keys  []Key
}

// outcomes returns the sections of the page.
func (r *Report) outcomes() []titledOutcome {
	all := []titledOutcome{{cmp.Or(r.Rules.Name, "The rules"), &r.Rules, nil}}
	for i := range r.Against {
		c := &r.Against[i]
		all = append(all, titledOutcome{"Against " + c.Name, &c.Outcome, c})
	}
	return all
}

type diagram struct {
	Title, Class string
	Bars         []bar
}

// width returns the length of a bin.
func (o *Outcome) width() time.Duration { return time.Duration(o.BinSeconds) * time.Second }

// bar is a bar of a diagram. Admitted and Over are the heights of its parts, in percent of the
// diagram's.
type bar struct {
	Admitted, Over float64
	Number, Label  string
}

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

// histogramBars returns a bar for the windows of each range of use, on a logarithmic scale.
func histogramBars(l *Limit) (all []bar) {
	most := uint64(1)
	for _, u := range l.Use {
		most = max(most, u.Windows)
	}
	for _, u := range l.Use {
		b := bar{Label: u.label()}
		if u.Windows > 0 {
			b.Number = short(u.Windows)
		}
		of := &b.Admitted
		if u.From >= 1 {
			of = &b.Over
		}
		*of = height(math.Log2(1+float64(u.Windows)) / math.Log2(1+float64(most)))
		all = append(all, b)
	}
	return all
}

// short abbreviates a number, such as 1.5k.
func short(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fG", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1e5:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	case n >= 1e3:
		return strings.Replace(fmt.Sprintf("%.1fk", float64(n)/1e3), ".0k", "k", 1)
	default:
		return thousands(n)
	}
}

func (u Use) label() string {
	switch {
	case u.UpTo == 0:
		return "more"
	case u.UpTo < 1:
		return strconv.FormatFloat(math.Round(u.UpTo*100), 'f', 0, 64) + " %"
	default:
		return "x " + strconv.FormatFloat(u.UpTo, 'f', 0, 64)
	}
}
