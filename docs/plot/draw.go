package main

import (
	"fmt"
	"strings"
)

// Dimensions in pixels.
const (
	width     = 860
	left      = 196 // of the time axis
	perSecond = 124
	first     = 500 // time at left
	last      = 5200
	top       = 74 // of the first row
	rowHeight = 62
	tick      = 30 // height of a request
)

// The white background keeps it readable on dark pages.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<title id="title">Requests that each algorithm admits of the same traffic, at %[3]d per second</title>
<desc id="desc">%[4]s</desc>
<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.name { font: 600 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.small { fill: #59636e }
.most { font-weight: 600; font-size: 20px }
.middle { text-anchor: middle }
.fullest { fill: #fff3cd }
.edge { stroke: #d1d9e0; stroke-dasharray: 2 3 }
.line { stroke: #818b98 }
.offered { stroke: #c5cdd5; stroke-width: 1.3 }
.admitted { stroke: #0550ae; stroke-width: 1.7 }
.denied { stroke: #d1242f; stroke-width: 1.3 }
</style>
<rect width="%[1]d" height="%[2]d" rx="6" fill="#ffffff"/>
`

// draw returns the SVG.
func draw(rows []row) string {
	var b strings.Builder
	bottom := top + rowHeight*len(rows)
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = fmt.Sprintf("%s admits %d of %d requests, at most %d in any second.", r.name, len(r.released), len(offered()), r.most)
	}
	fmt.Fprintf(&b, head, width, bottom+44, limit, strings.Join(texts, " "))
	legend(&b)
	for i := range rows {
		fullest(&b, rows[i].from, top+i*rowHeight)
	}
	for t := second; t <= last; t += second {
		fmt.Fprintf(&b, `<path class="edge" d="M%s %dV%d"/>`+"\n", x(t), top-6, bottom)
		fmt.Fprintf(&b, `<text class="small middle" x="%s" y="%d">%d s</text>`+"\n", x(t), bottom+18, t/second)
	}
	for i := range rows {
		rows[i].draw(&b, top+i*rowHeight)
	}
	fmt.Fprintf(&b, `<text class="small" x="%d" y="%d">dashed: window boundaries</text>`+"\n", left, bottom+35)
	b.WriteString("</svg>\n")
	return b.String()
}

// legend draws the meaning of the marks and the heading of the last column.
func legend(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="16" y="26"><tspan font-weight="600">%d requests per second</tspan>: six algorithms, same traffic</text>`+"\n", limit)
	at := left
	y := 52
	for _, l := range []struct {
		class, text string
		wide        int
	}{
		{"offered", "offered", 78},
		{"admitted", "admitted, when released", 180},
		{"denied", "denied", 78},
	} {
		fmt.Fprintf(b, `<path class="%s" d="M%d %dv-12m4 0v12m4 0v-12"/><text class="small" x="%d" y="%d">%s</text>`+"\n",
			l.class, at, y, at+15, y-2, l.text)
		at += l.wide
	}
	fmt.Fprintf(b, `<rect class="fullest" x="%d" y="%d" width="16" height="14"/><text class="small" x="%d" y="%d">the fullest second</text>`+"\n",
		at, y-13, at+22, y-2)
	fmt.Fprintf(b, `<text class="small middle" x="%d" y="%d">most in</text><text class="small middle" x="%d" y="%d">any second</text>`+"\n",
		width-48, y-16, width-48, y-2)
}

// fullest draws the background of the fullest second in the row at y.
func fullest(b *strings.Builder, from, y int) {
	fmt.Fprintf(b, `<rect class="fullest" x="%s" y="%d" width="%d" height="%d"/>`+"\n", x(from), y+4, perSecond, rowHeight-8)
}

// draw draws the row at y except for its background.
func (r *row) draw(b *strings.Builder, y int) {
	base := y + 10 + tick
	fmt.Fprintf(b, `<text class="name" x="16" y="%d">%s</text>`+"\n", base-tick/2+1, r.name)
	if r.settings != "" {
		fmt.Fprintf(b, `<text class="small" x="16" y="%d">%s</text>`+"\n", base+4, r.settings)
	}
	ticks(b, "offered", offered(), base, -tick)
	ticks(b, "admitted", r.released, base, -tick)
	ticks(b, "denied", r.denied, base+2, 8)
	fmt.Fprintf(b, `<path class="line" d="M%d %dH%s"/>`+"\n", left, base, x(last))
	fmt.Fprintf(b, `<text class="most middle" x="%d" y="%d">%d</text>`+"\n", width-48, base-tick/2+7, r.most)
}

// ticks draws a tick of the given height, upward if negative, for each time.
func ticks(b *strings.Builder, class string, times []int, y, high int) {
	fmt.Fprintf(b, `<path class="%s" d="`, class)
	for _, t := range times {
		fmt.Fprintf(b, "M%s %dv%d", x(t), y, high)
	}
	b.WriteString("\"/>\n")
}

// x returns the position of a time in pixels.
func x(t int) string {
	const scale = 100
	at := left*scale + (t-first)*perSecond*scale/second
	return strings.TrimSuffix(fmt.Sprintf("%d.%02d", at/scale, at%scale), ".00")
}
