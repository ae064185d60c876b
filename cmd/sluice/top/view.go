package top

import (
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
)

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

// truncate cuts the end of a text to fit the given number of columns.
func (v *view) truncate(text string, columns int) string {
	return ansi.Truncate(text, columns, v.ellipsis())
}

// ellipsis returns the character that replaces others.
func (v *view) ellipsis() string {
	if v.utf8 {
		return "…"
	}
	return "~"
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

type column struct {
	title string
	width int
}

// minClient and minName are the numbers of columns to which a client and the name of a limit are
// shortened. A hash has 17. A table drops columns only if both together get less than the sum.
const minClient, minName = 17, 10

// table formats items. It drops columns, the last ones first, while that makes an item fit without
// the options of its limit.
func (v *view) table(columns []column, items []item) (shown []column, lines []line) {
	used := 0
	for _, c := range columns {
		used += c.width + 2
	}
	for _, i := range items {
		p := v.partsOf(i)
		client := min(ansi.StringWidth(p.client), minClient)
		width := client + min(ansi.StringWidth(p.name), minClient+minName-client) + p.others()
		for columns[0].width+2+width <= v.width && len(columns) > 1 && used+width > v.width {
			used -= columns[len(columns)-1].width + 2
			columns = columns[:len(columns)-1]
		}
	}
	for _, i := range items {
		lines = append(lines, v.line(i.tone, align(columns, i.cells)+v.fit(i, v.width-used)))
	}
	return columns, lines
}

// parts are the printable parts of an item of a table. A line that is too long lacks options.
type parts struct{ client, before, name, limit, options string }

func (v *view) partsOf(i item) parts {
	before, limit, _ := strings.Cut(i.text, i.name)
	if i.client != "" {
		before = "  " + before
	}
	options := ""
	if at := strings.IndexAny(limit, ",("); at > 0 {
		limit, options = limit[:at], limit[at:]
	}
	return parts{
		v.printable(i.client), v.printable(before), v.printable(i.name), v.printable(limit), v.printable(options),
	}
}

// others returns the width of the parts that are not shortened, and of an ellipsis for the options.
func (p *parts) others() int { return ansi.StringWidth(p.before+p.limit) + min(1, len(p.options)) }

// fit returns the client and the text of an item for the given number of columns of the terminal.
// If they do not fit, the line will lack options; then it shortens the client, then the name.
func (v *view) fit(i item, columns int) string {
	p := v.partsOf(i)
	columns -= p.others()
	client := v.shorten(p.client, max(minClient, columns-ansi.StringWidth(p.name)))
	name := v.shorten(p.name, max(minName, columns-ansi.StringWidth(client)))
	return client + p.before + name + p.limit + p.options
}

// shorten replaces the middle of a text to fit the given number of columns. Both ends may
// distinguish it from others.
func (v *view) shorten(text string, columns int) string {
	width := ansi.StringWidth(text)
	if width <= columns {
		return text
	}
	start := ansi.Truncate(text, columns/2, "")
	end := ansi.TruncateLeft(text, width-(columns-columns/2-1), "")
	if ansi.StringWidth(end) > columns-columns/2-1 { // the first character takes two columns
		end = ansi.TruncateLeft(text, width-(columns-columns/2-2), "")
	}
	return start + v.ellipsis() + end
}

// align aligns texts right in columns.
func align(columns []column, cells []string) string {
	var b strings.Builder
	for i, c := range columns {
		b.WriteString(strings.Repeat(" ", max(0, c.width-ansi.StringWidth(cells[i]))) + cells[i] + "  ")
	}
	return b.String()
}
