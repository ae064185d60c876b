package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// shownLimits is the maximum number of limits in the text.
const shownLimits = 30

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s, %s; %s\n", r.headline(), r.From.Format("2006-01-02 15:04 MST"),
		counted(uint64(r.Rules.Keys), "key"), r.computedText())
	for _, line := range r.notes() {
		b.WriteString(line + "\n")
	}
	b.WriteString("\n")
	r.writeLimits(&b, &r.Rules)
	r.writeRecommended(&b)
	r.writeAlternatives(&b)
	for i := range r.Against {
		fmt.Fprintf(&b, "\nagainst %s:\n", r.Against[i].Name)
		r.writeLimits(&b, &r.Against[i].Outcome)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) headline() string {
	return fmt.Sprintf("%s in %s", counted(r.Requests, "request"), span(r.To.Sub(r.From)))
}

// computedText names the source of descriptors and the share that could be computed.
func (r *Report) computedText() string {
	unknown := 0
	for _, u := range r.Unknown {
		unknown += u.Count
	}
	return fmt.Sprintf("descriptors from %s (%s)", r.Source, percent(toUint(r.Computed), toUint(r.Computed+unknown)))
}

// notes returns the remarks that qualify the results.
func (r *Report) notes() []string {
	var all []string
	for i, u := range r.Unknown {
		if i == 5 {
			all = append(all, fmt.Sprintf("and %d more reasons", len(r.Unknown)-i))
			break
		}
		all = append(all, fmt.Sprintf("unknown: %s: %s", counted(uint64(u.Count), "descriptor"), u.Reason))
	}
	for i, e := range r.Exempt {
		if i == 5 {
			all = append(all, fmt.Sprintf("and %d more items of exempt", len(r.Exempt)-i))
			break
		}
		all = append(all, fmt.Sprintf("exempt: %s by %s", counted(e.Calls, "call"), e.Item))
	}
	all = append(all, r.recordedText())
	late := "; sort the log by time, or raise --reorder"
	if r.Ahead != nil {
		late = fmt.Sprintf(": %v; correct or remove that line%s", r.Ahead, strings.Replace(late, ";", ",", 1))
	}
	for _, note := range []struct {
		n         any
		one, many string
	}{
		{r.WithoutDescriptor, "line has no descriptor, so Envoy would not query the service", "lines have no descriptor, so Envoy would not query the service"},
		{r.OtherDomain, "call to another domain skipped", "calls to other domains skipped"},
		{r.UnknownDomain, "call to a domain without rules, which nothing limits", "calls to domains without rules, which nothing limits"},
		{r.OutsideRange, "line outside the time range skipped", "lines outside the time range skipped"},
		{r.NoRequest, "line without a request skipped", "lines without a request skipped"},
		{r.Late, "line skipped because it came too late to be sorted" + late, "lines skipped because they came too late to be sorted" + late},
		{r.Bad, "unreadable line skipped:", "unreadable lines skipped:"},
	} {
		switch n := toUint(note.n); {
		case n == 1:
			all = append(all, "1 "+note.one)
		case n > 1:
			all = append(all, thousands(n)+" "+note.many)
		}
	}
	for _, bad := range r.FirstBad {
		all = append(all, "  "+bad.String())
	}
	return all
}

// recordedText compares the rules' denials with the recorded ones.
func (r *Report) recordedText() string {
	denied := percent(r.Rules.Denied, r.Requests)
	switch c := r.Recorded; {
	case c != nil && c.Denied > 0:
		return fmt.Sprintf("recorded: %s denied; these rules deny %s and agree on %s of requests",
			percent(c.Denied, c.Requests), denied, percent(c.Agree, c.Requests))
	case c != nil:
		return fmt.Sprintf("these rules deny %s; the log records no denials", denied)
	default:
		return fmt.Sprintf("these rules deny %s; recorded denials are unknown because no line has a status code",
			denied)
	}
}

func (r *Report) writeLimits(b *strings.Builder, o *Outcome) {
	clock := "15:04"
	if r.From.YearDay() != r.To.YearDay() || r.From.Year() != r.To.Year() {
		clock = "01-02 15:04"
	}
	if len(o.Limits) == 0 {
		fmt.Fprintf(b, "no requests for %s\n", o.unused())
		return
	}
	if o.width() < time.Minute {
		clock += ":05"
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "limit\thits\tover\t\tkeys\tover\ttimeline\tworst "+span(o.width())+"\tused of limit: p50\tp99\tmax")
	for i := range o.shown() {
		l := &o.Limits[i]
		worst := "-"
		if bin := o.worst(l); bin != nil {
			worst = bin.At.Format(clock) + " " + percent(bin.Over, bin.Hits)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Title(), thousands(l.Hits), thousands(l.Over),
			percent(l.Over, l.Hits),
			thousands(toUint(l.Keys)), thousands(toUint(l.KeysOver)), spark(l.Timeline), worst,
			ratio(l.Used.P50), ratio(l.Used.P99), ratio(l.Used.Max))
	}
	_ = t.Flush() // cannot fail
	if n := len(o.Limits) - len(o.shown()); n > 0 {
		fmt.Fprintf(b, "and %s; --output json lists them\n", counted(uint64(n), "more limit"))
	}
	if unused := o.unused(); unused != "" {
		fmt.Fprintf(b, "no requests for %s\n", unused)
	}
	o.writeMostOver(b)
}

// worstBin is the bin of a limit with the most hits over the limit, and its start.
type worstBin struct {
	At time.Time
	Bin
}

// worst returns nil if no hit is over the limit.
func (o *Outcome) worst(l *Limit) (found *worstBin) {
	for i, b := range l.Timeline {
		if b.Over > 0 && (found == nil || b.Over > found.Over) {
			found = &worstBin{o.BinStart.Add(time.Duration(i) * o.width()), b}
		}
	}
	return found
}

// shownOver is the maximum number of keys over a limit in the text.
const shownOver = 5

// writeMostOver writes the keys with the most hits over each limit.
func (o *Outcome) writeMostOver(b *strings.Builder) {
	for i := range o.shown() {
		l := &o.Limits[i]
		if l.Over == 0 {
			continue
		}
		fmt.Fprintf(b, "\nmost over %s:\n", l.Title())
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, k := range l.TopKeys[:min(len(l.TopKeys), l.KeysOver, shownOver)] {
			fmt.Fprintf(t, "  %s\t%s of %s\t%s\n", k.shown(), thousands(k.Over), counted(k.Hits, "hit"),
				percent(k.Over, k.Hits))
		}
		_ = t.Flush() // cannot fail
	}
}

// shown formats a key for a terminal, escaping control characters. A long key loses its middle,
// because its end distinguishes clients if entries of a route come first.
func (k *Key) shown() string {
	const first, last = 40, 80
	if text := []rune(k.Name); len(text) > first+last {
		k = &Key{Name: string(text[:first]) + "..." + string(text[len(text)-last:])}
	}
	if utf8.ValidString(k.Name) && !strings.ContainsFunc(k.Name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return k.Name
	}
	return strconv.Quote(k.Name)
}

// KeysOver counts the keys over a limit.
func (o *Outcome) KeysOver() (n int) {
	for i := range o.Limits {
		n += o.Limits[i].KeysOver
	}
	return n
}

// shown returns the limits that the text and the page show.
func (o *Outcome) shown() []Limit { return o.Limits[:min(len(o.Limits), shownLimits)] }

// unused describes the limits without requests, or returns "" if there are none.
func (o *Outcome) unused() string {
	switch {
	case len(o.Limits) > 0 && o.Unused == 0:
		return ""
	case len(o.Limits) > 0:
		return counted(uint64(o.Unused), "other limit")
	case o.Unused == 0:
		return "a limit, because the rules have none"
	default:
		return "any limit: sluice explain shows the rule of a descriptor"
	}
}

// writeRecommended writes the recommended limits.
func (r *Report) writeRecommended(b *strings.Builder) {
	if r.Recommend == 0 || len(r.Rules.Limits) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", r.recommendedText())
	for _, l := range r.Rules.shown() {
		text := l.Recommended.text()
		l.Limit = ""
		fmt.Fprintf(b, "  %s%s\n", l.Title(), text)
	}
}

func (r *Report) recommendedText() string {
	return "recommended limits, each admitting " + strconv.FormatFloat(r.Recommend, 'f', -1, 64) +
		" % of its hits if it were the only limit:"
}

// text formats the recommended limit and its measured result.
func (r *Recommendation) text() string {
	if r.Reason != "" {
		return "none: " + r.Reason
	}
	return fmt.Sprintf("%s (checked: %s over)", r.Limit, percent(r.Over, r.Hits))
}

// Title returns the limit with its rule.
func (l *Limit) Title() string {
	text := l.Rule + " " + l.Limit
	if l.Name != "" {
		text = l.Name + ": " + text
	}
	if l.Shadow {
		text += " (shadow)"
	}
	return text
}

// writeAlternatives writes a table that compares the rules.
func (r *Report) writeAlternatives(b *strings.Builder) {
	if len(r.Against) == 0 {
		return
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rules\tdenied\t\tmore\tfewer\tkeys over")
	line := func(o *Outcome, more, fewer string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", o.Name, thousands(o.Denied), percent(o.Denied, r.Requests), more,
			fewer, thousands(toUint(o.KeysOver())))
	}
	line(&r.Rules, "-", "-")
	for i := range r.Against {
		c := &r.Against[i]
		line(&c.Outcome, thousands(c.More), thousands(c.Fewer))
	}
	_ = t.Flush() // cannot fail
}

// counted formats 1 key, or 2,000 keys.
func counted(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

// thousands formats a number with commas.
func thousands(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// toUint converts a count.
func toUint(n any) uint64 {
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

// percent formats a share. Only all are 100 %, and only none are 0 %.
func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	p := float64(part) / float64(whole) * 100
	digits := 1
	switch {
	case part == 0:
		return "0 %"
	case part == whole:
		return "100 %"
	case p < 0.001:
		return "<0.001 %"
	case p > 99.999:
		return ">99.999 %"
	case p < 0.1 || p > 99.9:
		digits = 3
	case p < 1 || p > 99:
		digits = 2
	}
	return strconv.FormatFloat(p, 'f', digits, 64) + " %"
}

// ratio formats a number with two significant digits.
func ratio(v float64) string {
	switch {
	case v >= 10 || v == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// span formats a duration in at most two units.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return strings.Replace(d.Round(time.Second).String(), "m0s", "m", 1)
	}
	d = d.Round(time.Minute)
	days := d / (24 * time.Hour)
	rest := d % (24 * time.Hour)
	text := fmt.Sprintf("%dh%02dm", rest/time.Hour, rest%time.Hour/time.Minute)
	if days > 0 {
		text = fmt.Sprintf("%dd%s", days, text)
	}
	return text
}

// spark draws a timeline as eight bars.
func spark(bins []Bin) string {
	const bars = 8
	n := min(bars, len(bins))
	sums := make([]float64, n) // numbers up to 2^64-1 could overflow
	maxHits := 1.0
	for i, b := range bins {
		at := i * n / len(bins)
		sums[at] += float64(b.Hits)
		maxHits = max(maxHits, sums[at])
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, s := range sums {
		b.WriteRune(levels[int(s/maxHits*7)])
	}
	return b.String() + strings.Repeat(" ", bars-utf8.RuneCountInString(b.String()))
}
