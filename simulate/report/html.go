package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed report.html
var reportHTML string

// reportTemplate is parsed when a page is written, since most commands write none.
var reportTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"thousands": func(n any) string { return thousands(asUint(n)) },
		"percent":   func(part, whole any) string { return percent(asUint(part), asUint(whole)) },
		"ratio":     ratio,
		"moreKeys":  moreKeys,
	}).Parse(reportHTML))
})

func asUint(n any) uint64 {
	switch n := n.(type) {
	case int:
		return uint64(max(0, n))
	case uint32:
		return uint64(n)
	case uint64:
		return n
	default:
		return 0
	}
}

// page is what the template shows.
type page struct {
	*Report

	Headline string
	Notes    []string
	Advice   string
	Sides    []pageSide
}

type pageSide struct {
	Title  string
	Limits []pageLimit
	Unused string
	Left   int
}

type pageLimit struct {
	*Limit

	Title     string
	Advice    string
	Timeline  template.HTML
	Histogram template.HTML
	TimeText  string
	UseText   string
}

// WriteHTML writes the report as a page of one file, without script, that can be printed.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{
		Report: r, Notes: r.notes(),
		Headline: fmt.Sprintf("%s in %s", counted(r.Requests, "request"), span(r.To.Sub(r.From))),
	}
	if r.Recommend > 0 {
		p.Advice = strings.TrimSuffix(r.recommendedText(), ":")
	}
	title := "The rules"
	if r.Against != nil {
		title = "The first rules"
		p.Sides = append(p.Sides, r.side("The rules of --against", &r.Against.Outcome))
	}
	p.Sides = append([]pageSide{r.side(title, &r.Rules)}, p.Sides...)
	return reportTemplate().Execute(w, p)
}

func (r *Report) side(title string, o *Outcome) pageSide {
	s := pageSide{Title: title}
	if o.Unused > 0 || len(o.Limits) == 0 {
		s.Unused = o.unused()
	}
	for i := range o.Limits {
		if i == shownLimits {
			s.Left = len(o.Limits) - i
			break
		}
		l := &o.Limits[i]
		p := pageLimit{Limit: l, Title: l.Title()}
		if l.Recommended != nil {
			p.Advice = l.Recommended.text()
		}
		p.TimeText = fmt.Sprintf("Hits by time, %s each: %s of %s are over the limit.", time.Duration(o.BinSeconds)*time.Second, percent(l.Over, l.Hits), thousands(l.Hits))
		if l.Worst != nil {
			p.TimeText += fmt.Sprintf(" The worst minute is %s UTC: %s.", l.Worst.At.Format("2006-01-02 15:04"), percent(l.Worst.Over, l.Worst.Hits))
		}
		p.UseText = fmt.Sprintf("What a key asked for in a window, as a share of the limit: half of them at most %s, 99 of 100 at most %s, the greatest %s.",
			ratio(l.Used.P50), ratio(l.Used.P99), ratio(l.Used.Max))
		p.Timeline = drawTimeline(l, o)
		p.Histogram = drawHistogram(l)
		s.Limits = append(s.Limits, p)
	}
	return s
}

// The pictures' measures.
const (
	pictureWidth  = 720
	pictureHeight = 150
	pictureFoot   = 20 // for what stands below the axis
	pictureHead   = 14
)

// drawTimeline draws the hits of each while, those over the limit on top.
func drawTimeline(l *Limit, o *Outcome) template.HTML {
	most := uint64(1)
	for _, b := range l.Timeline {
		most = max(most, b.Hits)
	}
	var b strings.Builder
	begin(&b, "Hits by time")
	const high = pictureHeight - pictureFoot - pictureHead
	wide := float64(pictureWidth) / float64(len(l.Timeline))
	scale := float64(high) / float64(most)
	base := float64(pictureHeight - pictureFoot)
	bars := func(class string, of func(Bin) (from, to uint64)) {
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		for i, bin := range l.Timeline {
			if from, to := of(bin); to > from {
				fmt.Fprintf(&b, "M%.1f %.1fv%.1fh%.1fv%.1fz", float64(i)*wide, base-float64(from)*scale, -float64(to-from)*scale, max(wide-0.5, 0.5), float64(to-from)*scale)
			}
		}
		b.WriteString(`"/>`)
	}
	bars("admitted", func(bin Bin) (uint64, uint64) { return 0, bin.Hits - bin.Over })
	bars("over", func(bin Bin) (uint64, uint64) { return bin.Hits - bin.Over, bin.Hits })
	fmt.Fprintf(&b, `<path class="axis" d="M0 %.1fh%d"/>`, base, pictureWidth)
	fmt.Fprintf(&b, `<text x="0" y="10">%s hits in %s at most</text>`, thousands(most), time.Duration(o.BinSeconds)*time.Second)
	end := o.BinStart.Add(time.Duration(int64(len(l.Timeline))*o.BinSeconds) * time.Second)
	clock := "15:04:05"
	if end.Sub(o.BinStart) > 24*time.Hour {
		clock = "2006-01-02 15:04"
	}
	fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><text class="end" x="%d" y="%d">%s UTC</text>`,
		pictureHeight-5, o.BinStart.Format(clock), pictureWidth, pictureHeight-5, end.Format(clock))
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and times only
}

// drawHistogram draws in how many windows a key asked for which share of the limit. Bars are
// as high as the logarithm of the number.
func drawHistogram(l *Limit) template.HTML {
	var b strings.Builder
	begin(&b, "Use of the limit")
	const high = pictureHeight - pictureFoot - pictureHead
	most := 1
	for _, u := range l.Use {
		most = max(most, bits.Len64(u.Windows))
	}
	n := len(l.Use)
	wide := float64(pictureWidth) / float64(n)
	base := float64(pictureHeight - pictureFoot)
	for i, u := range l.Use {
		class := "admitted"
		if u.From >= 1 {
			class = "over"
		}
		tall := float64(high) * float64(bits.Len64(u.Windows)) / float64(most)
		fmt.Fprintf(&b, `<path class="%s" d="M%.1f %.1fv%.1fh%.1fv%.1fz"/>`, class, float64(i)*wide, base, -tall, wide-3, tall)
		if u.Windows > 0 {
			fmt.Fprintf(&b, `<text class="middle" x="%.1f" y="%.1f">%s</text>`, (float64(i)+0.5)*wide-1.5, base-tall-3, short(u.Windows))
		}
		fmt.Fprintf(&b, `<text class="middle" x="%.1f" y="%d">%s</text>`, (float64(i)+0.5)*wide-1.5, pictureHeight-5, u.label())
	}
	fmt.Fprintf(&b, `<path class="axis" d="M0 %.1fh%d"/>`, base, pictureWidth)
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers only
}

func begin(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%[3]s</title>`, pictureWidth, pictureHeight, title)
}

// short writes a number in few characters.
func short(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fG", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	default:
		return thousands(n)
	}
}

// label is a bar's name.
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
