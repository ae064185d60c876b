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
		"notes":       (*Report).notes,
		"advice":      func(r *Report) string { return strings.TrimSuffix(r.recommendedText(), ":") },
		"outcomes":    (*Report).outcomes,
		"shown":       (*Outcome).shown,
		"left":        func(o *Outcome) int { return len(o.Limits) - len(o.shown()) },
		"unused":      (*Outcome).unused,
		"title":       (*Limit).Title,
		"recommended": (*Recommendation).text,
		"width":       (*Outcome).width,
		"timeline":    drawTimeline,
		"histogram":   drawHistogram,
	}).Parse(reportHTML))
})

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

// width returns the length of a bin.
func (o *Outcome) width() time.Duration { return time.Duration(o.BinSeconds) * time.Second }

// Dimensions of the diagrams.
const (
	pictureWidth  = 560
	pictureHeight = 170
	footHeight    = 22 // for labels below the axis
	headHeight    = 22
	plotLeft      = 48 // for numbers of the axis
	plotWidth     = pictureWidth - plotLeft
	plotBottom    = pictureHeight - footHeight
	plotHeight    = plotBottom - headHeight
)

// drawTimeline draws the hits of each bin, with those over the limit on top.
func drawTimeline(l *Limit, o *Outcome) template.HTML {
	maxHits := uint64(1)
	for _, b := range l.Timeline {
		maxHits = max(maxHits, b.Hits)
	}
	var b strings.Builder
	beginSVG(&b, "Hits by time")
	wide := float64(plotWidth) / float64(len(l.Timeline))
	height := func(n uint64) float64 { return float64(n) / float64(maxHits) * plotHeight }
	step := tickStep(maxHits)
	for i := range maxHits/step + 1 {
		tick(&b, height(i*step), i*step)
	}
	bars := func(class string, of func(Bin) (from, to uint64)) {
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		for i, bin := range l.Timeline {
			if from, to := of(bin); to > from {
				bar(&b, float64(i)*wide, max(wide-0.5, 0.5), height(from), height(to))
			}
		}
		b.WriteString(`"/>`)
	}
	bars("admitted", func(bin Bin) (uint64, uint64) { return 0, bin.Hits - bin.Over })
	bars("over", func(bin Bin) (uint64, uint64) { return bin.Hits - bin.Over, bin.Hits })
	fmt.Fprintf(&b, `<text x="0" y="12">hits in %s</text>`, o.width())
	length := time.Duration(len(l.Timeline)) * o.width()
	clock := "15:04:05"
	if length > 24*time.Hour {
		clock = "2006-01-02 15:04"
	}
	for _, at := range []struct {
		class string
		share float64
	}{{"", 0}, {"middle roomy", 0.5}, {"end", 1}} {
		text := o.BinStart.Add(time.Duration(at.share * float64(length))).Format(clock)
		if at.share == 1 {
			text += o.BinStart.Format(" MST")
		}
		fmt.Fprintf(&b, `<text class="%s" x="%.0f" y="%d">%s</text>`, at.class, plotLeft+at.share*plotWidth,
			pictureHeight-4, text)
	}
	return endSVG(&b)
}

// tickStep returns the distance between the numbers of an axis: a round number, so that at most
// five fit.
func tickStep(maximum uint64) uint64 {
	for step := uint64(1); ; step *= 10 {
		for _, round := range []uint64{step, 2 * step, 5 * step} {
			if maximum/round < 5 {
				return round
			}
		}
	}
}

// tick draws a number of an axis.
func tick(b *strings.Builder, height float64, n uint64) {
	y := plotBottom - height
	if n > 0 {
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fh%d"/>`, plotLeft, y, plotWidth)
	}
	fmt.Fprintf(b, `<text class="end" x="%d" y="%.1f">%s</text>`, plotLeft-6, y+4, short(n))
}

// bar draws a bar between two heights.
func bar(b *strings.Builder, x, wide, from, to float64) {
	fmt.Fprintf(b, "M%.1f %.1fv%.1fh%.1fv%.1fz", plotLeft+x, plotBottom-from, from-to, wide, to-from)
}

// drawHistogram draws the number of windows by the share of the limit used, on a logarithmic scale.
func drawHistogram(l *Limit) template.HTML {
	var b strings.Builder
	beginSVG(&b, "Use of the limit")
	maxWindows := uint64(1)
	for _, u := range l.Use {
		maxWindows = max(maxWindows, u.Windows)
	}
	height := func(n uint64) float64 {
		return math.Log2(1+float64(n)) / math.Log2(1+float64(maxWindows)) * plotHeight
	}
	every := uint64(1 + math.Log10(float64(maxWindows))/5) // number about five powers of ten
	for n, i := uint64(1), uint64(0); n <= maxWindows && n < math.MaxUint64/10; n, i = n*10, i+1 {
		if i%every == 0 {
			tick(&b, height(n), n)
		}
	}
	wide := float64(plotWidth) / float64(len(l.Use))
	for i, u := range l.Use {
		class := "admitted"
		if u.From >= 1 {
			class = "over"
		}
		x := float64(i) * wide
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		bar(&b, x, wide-3, 0, height(u.Windows))
		b.WriteString(`"/>`)
		middle := plotLeft + x + wide/2 - 1.5
		if u.Windows > 0 {
			fmt.Fprintf(&b, `<text class="middle bin" x="%.1f" y="%.1f">%s</text>`, middle,
				plotBottom-height(u.Windows)-3, short(u.Windows))
		}
		fmt.Fprintf(&b, `<text class="middle bin" x="%.1f" y="%d">%s</text>`, middle, pictureHeight-4, u.label())
	}
	return endSVG(&b)
}

func beginSVG(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%[3]s</title>`, pictureWidth,
		pictureHeight, title)
}

// endSVG completes the diagram of beginSVG.
func endSVG(b *strings.Builder) template.HTML {
	fmt.Fprintf(b, `<path class="axis" d="M%d %dh%d"/></svg>`, plotLeft, plotBottom, plotWidth)
	return template.HTML(b.String()) //nolint:gosec // numbers and times only
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
