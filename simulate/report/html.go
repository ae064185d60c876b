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

// page is parsed when one is written, since most commands write none.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"thousands":   func(n any) string { return thousands(asUint(n)) },
		"percent":     func(part, whole any) string { return percent(asUint(part), asUint(whole)) },
		"ratio":       ratio,
		"moreKeys":    moreKeys,
		"headline":    (*Report).headline,
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

// WriteHTML writes the report as a page of one file, without script, that can be printed.
func (r *Report) WriteHTML(w io.Writer) error { return page().Execute(w, r) }

// titled is an outcome with a title.
type titled struct {
	Title string
	*Outcome
}

// outcomes are what the page shows, one after another.
func (r *Report) outcomes() []titled {
	if r.Against == nil {
		return []titled{{"The rules", &r.Rules}}
	}
	return []titled{{"The first rules", &r.Rules}, {"The rules of --against", &r.Against.Outcome}}
}

// width is how long a bin is.
func (o *Outcome) width() time.Duration { return time.Duration(o.BinSeconds) * time.Second }

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
	fmt.Fprintf(&b, `<text x="0" y="10">%s hits in %s at most</text>`, thousands(most), o.width())
	end := o.BinStart.Add(time.Duration(len(l.Timeline)) * o.width())
	clock := "15:04:05"
	if end.Sub(o.BinStart) > 24*time.Hour {
		clock = "2006-01-02 15:04"
	}
	fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><text class="end" x="%d" y="%d">%s UTC</text>`,
		pictureHeight-5, o.BinStart.Format(clock), pictureWidth, pictureHeight-5, end.Format(clock))
	return picture(&b)
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
	return picture(&b)
}

func begin(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%[3]s</title>`, pictureWidth, pictureHeight, title)
}

// picture ends what begin began.
func picture(b *strings.Builder) template.HTML {
	fmt.Fprintf(b, `<path class="axis" d="M0 %dh%d"/></svg>`, pictureHeight-pictureFoot, pictureWidth)
	return template.HTML(b.String()) //nolint:gosec // numbers and times only
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
