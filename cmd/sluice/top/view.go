package top

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
)

type view struct{ width int }

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
// indented. If there is no space after the prefix, it has a line of its own.
func (v *view) wrap(t tone, prefix, text string, maxLines int) (lines []line) {
	indent := ansi.StringWidth(prefix)
	if v.width-indent < 20 && indent > 2 {
		return append([]line{v.line(t, prefix)}, v.wrap(t, "  ", text, maxLines)...)
	}
	wrapped := ansi.Wrap(v.printable(text), max(20, v.width-indent), "")
	for _, part := range strings.SplitN(wrapped, "\n", maxLines) {
		lines = append(lines, v.line(t, prefix+strings.ReplaceAll(part, "\n", " ")))
		prefix = strings.Repeat(" ", indent)
	}
	return lines
}

// truncate cuts the end of a text to fit the given number of columns.
func (v *view) truncate(text string, columns int) string { return ansi.Truncate(text, columns, "…") }

// maxText bounds the texts that are formatted, in bytes. Screens show less of each.
const maxText = 4 << 10

// printable returns s without the characters that the terminal cannot show.
func (v *view) printable(s string) string { return format.Printable(s[:min(len(s), maxText)]) }

// sparkline draws numbers in the given number of columns.
func (v *view) sparkline(numbers []uint32, columns int) string {
	steps := []rune(" ▁▂▃▄▅▆▇█")
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
