package top

import (
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
)

// view formats text for a terminal.
type view struct {
	width int
	// utf8 is false if the terminal is limited to ASCII.
	utf8 bool
}

// tone is the style of a line.
type tone int

const (
	plain tone = iota
	strong
	red
	yellow
	faint
)

var styles = [...]lipgloss.Style{
	plain:  lipgloss.NewStyle(),
	strong: lipgloss.NewStyle().Bold(true),
	red:    lipgloss.NewStyle().Foreground(lipgloss.Red),
	yellow: lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	faint:  lipgloss.NewStyle().Faint(true),
}

// line is a line of a view. It fits the width and contains no control characters.
type line struct {
	tone tone
	text string
	// item is the index of the item that the line belongs to, or -1.
	item int
}

// line returns a text as a line. Parts of the text may come from clients.
func (v *view) line(t tone, text string) line {
	return line{t, v.truncate(v.printable(text), v.width), -1}
}

// wrap breaks text into at most maxLines lines after a prefix, by which all but the first are
// indented.
func (v *view) wrap(t tone, prefix, text string, maxLines int) (lines []line) {
	indent := ansi.StringWidth(prefix)
	width := max(20, v.width-indent)
	for rest := v.printable(text); len(lines) == 0 || rest != ""; prefix = strings.Repeat(" ", indent) {
		part := ansi.Truncate(rest, width, "")
		if len(lines) == maxLines-1 {
			part = rest
		} else if part != rest && rest[len(part)] != ' ' {
			if space := strings.LastIndexByte(part, ' '); space > len(part)/2 {
				part = part[:space]
			}
		}
		lines = append(lines, v.line(t, prefix+part))
		rest = strings.TrimLeft(rest[len(part):], " ")
	}
	return lines
}

// truncate shortens a text to the given number of columns.
func (v *view) truncate(text string, columns int) string {
	if v.utf8 {
		return ansi.Truncate(text, columns, "…")
	}
	return ansi.Truncate(text, columns, "~")
}

// maxText bounds the texts that are formatted, in bytes. Screens show less of each.
const maxText = 4 << 10

// printable returns s without the characters that the terminal cannot show.
func (v *view) printable(s string) string {
	s = format.Printable(s[:min(len(s), maxText)])
	if v.utf8 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, s)
}

// sparkline draws numbers in the given number of columns.
func (v *view) sparkline(numbers []uint32, columns int) string {
	steps := []rune("0123456789")
	if v.utf8 {
		steps = []rune(" ▁▂▃▄▅▆▇█")
	}
	sums := make([]uint64, columns)
	most := uint64(1)
	for i, n := range numbers {
		at := i * columns / len(numbers)
		sums[at] += uint64(n)
		most = max(most, sums[at])
	}
	out := make([]rune, columns)
	for i, n := range sums {
		at := int(float64(n) / float64(most) * float64(len(steps)-1))
		if n > 0 {
			at = max(1, at)
		}
		out[i] = steps[at]
	}
	return string(out)
}

// column is a column of a table.
type column struct {
	title string
	width int
}

// table formats items. It drops columns, the last ones first, while that makes an item fit.
func (v *view) table(columns []column, items []item) (shown []column, lines []line) {
	used := 0
	for _, c := range columns {
		used += c.width + 2
	}
	for _, i := range items {
		width := ansi.StringWidth(v.printable(i.client + "  " + i.text))
		for width <= v.width && len(columns) > 1 && used+width > v.width {
			used -= columns[len(columns)-1].width + 2
			columns = columns[:len(columns)-1]
		}
	}
	for _, i := range items {
		lines = append(lines, v.line(i.tone, align(columns, i.cells)+v.fit(i, v.width-used)))
	}
	return columns, lines
}

// fit returns the client and the text of an item for the given number of columns of the terminal.
// If both do not fit, it truncates the client, but leaves space for a hash.
func (v *view) fit(i item, columns int) string {
	if i.client == "" {
		return i.text
	}
	text := "  " + i.text
	return v.truncate(v.printable(i.client), max(17, columns-ansi.StringWidth(v.printable(text)))) + text
}

// align aligns texts right in columns.
func align(columns []column, cells []string) string {
	var b strings.Builder
	for i, c := range columns {
		b.WriteString(strings.Repeat(" ", max(0, c.width-ansi.StringWidth(cells[i]))) + cells[i] + "  ")
	}
	return b.String()
}
