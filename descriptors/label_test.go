package descriptors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestRowLabels checks that the label of a limit, with or without a row, differs from the labels of
// all other limits of the list.
func TestRowLabels(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit\nal,1\n")
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "a", "b", "a b", "a: b", "a: b: a", "a:", "a: ", "a shadow", "shadow", "5/hour", "a #2", "a #3", " a", ": a", "a  b"}
	lists, rejected := 0, 0
	for range 3000 {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors: [{key: k, rate_limits: [{unit: second, requests_per_unit: 5}")
		for _, unit := range []string{"minute", "hour", "day"} {
			fmt.Fprintf(&b, ", {unit: %s, requests_per_unit: 5, name: %q, shadow: %t", unit, names[random.IntN(len(names))], random.IntN(3) == 0)
			if random.IntN(2) == 0 {
				b.WriteString(", table: t")
			}
			b.WriteString("}")
		}
		b.WriteString("]}]")
		set, found := compile(t, opt, b.String())
		if lists++; set == nil {
			if rejected++; !strings.Contains(found.Err().Error(), "could have the label") {
				t.Fatalf("%s: %v", b.String(), found)
			}
			continue
		}
		of := map[string]*Limit{}
		note := func(label string, l *Limit) {
			if other := of[label]; other != nil {
				t.Fatalf("%s: the limits at %s and %s have the label %q", b.String(), other.Pos, l.Pos, label)
			}
			of[label] = l
		}
		for _, l := range set.Limits {
			note(l.Label, l)
			for _, row := range names {
				if l.Table != nil && row != "" {
					note(l.Table.label(l.Label, row), l)
				}
			}
		}
	}
	if rejected == 0 || rejected > lists/2 {
		t.Errorf("%d of %d lists are rejected", rejected, lists)
	}
}

// TestAmbiguousLabels checks the error for a list with ambiguous labels.
func TestAmbiguousLabels(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit\nal,1\n")
	_, found := compile(t, opt, `domain: d
descriptors:
- key: k
  rate_limits:
  - {unit: minute, requests_per_unit: 5, name: "plan: gold"}
  - {unit: hour, requests_per_unit: 5, name: plan, table: t}
`)
	const want = `:5:5: error: domain "d" > key "k" > rate_limits[0]: a row "gold" of table "t" could have the label "plan: gold" of this limit in metrics, since the limit at `
	if len(found) != 1 || !strings.Contains(found[0].String(), want) || !strings.HasSuffix(found[0].String(), `:6:5 has the label "plan"; give one of the two another name`) {
		t.Errorf("diagnostics %v, want one that contains %s", found, want)
	}
}

// TestCalendarMonthsInList checks lists of two limits that are the same only with CalendarMonths.
func TestCalendarMonthsInList(t *testing.T) {
	const plain = "{unit: month, requests_per_unit: 20}"
	for _, other := range []string{
		"{unit: month, requests_per_unit: 10, calendar: true}", "{unit: month, requests_per_unit: 10, calendar: true, timezone: UTC}",
		"{unit: month, requests_per_unit: 10, calendar: true, anchor_day: 1}", "{unit: month, requests_per_unit: 10, unit_multiplier: 1, calendar: true}",
	} {
		for _, list := range []string{plain + ", " + other, other + ", " + plain, "{unit: day, requests_per_unit: 5}, " + plain + ", " + other} {
			text := "domain: d\ndescriptors: [{key: k, rate_limits: [" + list + "]}]"
			if set, found := compile(t, Options{}, text); set == nil {
				t.Errorf("%s: %v", list, found)
			}
			_, found := compile(t, Options{CalendarMonths: true}, text)
			if len(found) != 1 || !strings.Contains(found[0].String(), "have the same algorithm and window") || !strings.Contains(found[0].String(), "--calendar-months") {
				t.Errorf("with calendar months: %s: %v", list, found)
			}
		}
	}
	for _, other := range []string{
		"{unit: month, requests_per_unit: 10, calendar: true, timezone: Europe/Berlin}", "{unit: month, requests_per_unit: 10, calendar: false}",
		"{unit: month, requests_per_unit: 10, algorithm: token_bucket}", "{unit: month, requests_per_unit: 10, shadow: true}",
	} {
		if set, found := compile(t, Options{CalendarMonths: true}, "domain: d\ndescriptors: [{key: k, rate_limits: ["+plain+", "+other+"]}]"); set == nil {
			t.Errorf("%s: %v", other, found)
		}
	}
}
