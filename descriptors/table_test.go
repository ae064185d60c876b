package descriptors

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// withTable returns options with a table t that has the rows of text.
func withTable(tb testing.TB, text string) (Options, *tables.Table) {
	tb.Helper()
	all := new(tables.Registry)
	e, err := all.Add("t", "t.csv")
	must.OK(tb, err)
	if text != "" {
		rows, found := e.Read("t.csv", strings.NewReader(text))
		must.OK(tb, found.Err())
		e.Replace(rows)
	}
	return Options{Tables: all}, e.Table
}

// TestRows checks the effect of rows on each kind of rule.
func TestRows(t *testing.T) {
	opt, table := withTable(t, "k,requests_per_unit,unit,burst,unlimited,name\n"+
		"al,500,,,,\nzero,0,,,,\nday,7,day,,,\nburst,100,,7,,\nhuge,4294967295,,4294967295,,\nfree,,,,true,\ngold,9,,,,gold\nfreegold,,,,true,gold\n")
	set := load(t, opt, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 10, table: t, name: n}}
  - {key: other, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket, burst: 20, table: t}}]}
  - {key: log, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_log, table: t}}]}
  - {key: one, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: concurrency, name: c, table: t}}]}
  - {key: r, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000, name: r, reserve: {amount: 10}, table: t}}]}
  - {key: q, quota_mode: true, descriptors: [{key: k, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, table: t}}]}
  - key: list
    descriptors:
      - key: k
        rate_limits:
          - {unit: minute, requests_per_unit: 60, table: t}
          - {unit: hour, requests_per_unit: 1000}
          - {unit: month, requests_per_unit: 60, shadow: true, table: t}
`)
	for _, tt := range []struct {
		desc Descriptor
		want string // the limits of the charges, and flags of the plan
	}{
		{desc("k", "nobody"), "10/2hour n"},
		{desc("k", "al"), "500/2hour n"},
		{desc("k", "zero"), "0/2hour n"},
		{desc("k", "day"), "7/day n"},
		{desc("k", "free"), "unlimited"},
		{desc("k", "gold"), "9/2hour n row gold"},
		{desc("k", "freegold"), "unlimited row gold"},
		{desc("k", "al").limit(5, 3, 0), "5/hour"}, // the override applies
		{desc("other", "", "k", "nobody"), "10/hour, algorithm: token_bucket, burst: 20"},
		{desc("other", "", "k", "al"), "500/hour, algorithm: token_bucket, burst: 1000"}, // burst is scaled
		{desc("other", "", "k", "burst"), "100/hour, algorithm: token_bucket, burst: 7"},
		{desc("other", "", "k", "zero"), "0/hour, algorithm: token_bucket, burst: 1"},
		{desc("other", "", "k", "day"), "7/day, algorithm: token_bucket, burst: 14"},
		{desc("log", "", "k", "huge"), "4096/hour, algorithm: sliding_log"}, // the maximum of the algorithm
		{desc("one", "", "k", "day"), "7 concurrent requests, each for at most 1 day c"},
		{desc("r", "", "k", "al"), "500/hour, reserve: { amount: 10, ttl: 1m0s, unsettled: keep } r"},
		{desc("q", "", "k", "free"), "unlimited"},
		{desc("list", "", "k", "nobody"), "60/minute; 1000/hour; 60/month"},
		{desc("list", "", "k", "al"), "500/minute; 1000/hour; 500/month"},
		{desc("list", "", "k", "gold"), "9/minute row gold; 1000/hour; 9/month row gold"},
		{desc("list", "", "k", "free"), "1000/hour"},
	} {
		p := plan(set, Global{}, tt.desc)
		var got []string
		for i, l := range p.Limits {
			text := strings.ReplaceAll(l.String(), ", table: t", "")
			if text = join(text, l); p.Batch.Charges[i].Policy != &l.Policy {
				t.Errorf("%s: the policy of the charge is not that of the row", text)
			}
			if err := l.Policy.Validate(); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			got = append(got, text)
		}
		if of := p.Matches[0].Unlimited; of != nil {
			got = append(got, strings.TrimSuffix("unlimited"+join("", of), " n"))
		}
		text := strings.ReplaceAll(strings.Join(got, "; "), " n row", " row")
		if want := strings.ReplaceAll(tt.want, " n row", " row"); text != want {
			t.Errorf("%v: %s, want %s", tt.desc.Entries, text, want)
		}
	}
	p := plan(set, Global{}, desc("list", "", "k", "gold"))
	if got := []string{p.Limits[0].Label, p.Limits[1].Label, p.Limits[2].Label}; fmt.Sprint(got) != "[60/minute: gold 1000/hour 60/month shadow: gold]" {
		t.Errorf("labels are %q", got)
	}
	p = plan(set, Global{}, desc("r", "", "k", "al"))
	if r := p.Batch.Charges[0].Policy.Reserve; r == nil || r == set.Limits[0].Policy.Reserve {
		t.Errorf("reserve %+v", r)
	}
	must.OK(t, table.Put([]string{"k"}, []string{"nobody"}, tables.Row{RequestsPerUnit: 33}))
	if got := plan(set, Global{}, desc("k", "nobody")).Limits[0].RequestsPerUnit; got != 33 {
		t.Errorf("the limit of a changed row is %d", got)
	}
}

func join(text string, l *Limit) string {
	if l.Name != "" {
		text += " " + l.Name
	}
	if l.Row != "" {
		text += " row " + l.Row
	}
	return text
}

// TestRowsKeepCounters checks that a row keeps the counter, unless it changes the window.
func TestRowsKeepCounters(t *testing.T) {
	for _, words := range []string{
		"", "algorithm: sliding_window", "algorithm: sliding_log", "algorithm: token_bucket", "algorithm: leaky_bucket", "algorithm: concurrency, name: c",
	} {
		opt, table := withTable(t, "k,requests_per_unit\nx,1\n")
		set := load(t, opt, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 10, table: t, "+words+"}}]")
		id := func() any { return plan(set, Global{}, desc("k", "al")).Batch.Charges[0].ID }
		own := id()
		put := func(row tables.Row) {
			must.OK(t, table.Put([]string{"k"}, []string{"al"}, row))
		}
		for _, row := range []tables.Row{{RequestsPerUnit: 500}, {}, {RequestsPerUnit: 4096, Burst: 3}, {RequestsPerUnit: 5, Unit: rules.Hour, Name: "n"}} {
			if put(row); id() != own {
				t.Errorf("%s: the row %v has another counter", words, row)
			}
		}
		if put(tables.Row{RequestsPerUnit: 5, Unit: rules.Day}); id() == own {
			t.Errorf("%s: another window has the same counter", words)
		}
		if table.Delete([]string{"al"}); id() != own {
			t.Errorf("%s: the counter changes when the row is deleted", words)
		}
	}
}

// TestCalendarRows checks that rows with other units use the calendar when overrides with that unit
// do, and that Explain shows it.
func TestCalendarRows(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit,unit\nhour,9,hour\nday,9,day\nmonth,9,month\nyear,9,year\n")
	for _, months := range []bool{false, true} {
		opt.CalendarMonths = months
		set := load(t, opt, `
domain: d
descriptors:
  - {key: berlin, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5, table: t, calendar: true, timezone: Europe/Berlin}}]}
  - {key: plain, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 5, table: t}}]}
  - {key: ring, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5, table: t, algorithm: sliding_window}}]}
  - {key: month, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 5, table: t}}]}
  - {key: off, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 5, table: t, calendar: false}}]}
  - {key: bucket, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5, table: t, algorithm: token_bucket}}]}
`)
		for _, tc := range []struct{ key, row, want, withMonths string }{
			{"berlin", "hour", "", ""},
			{"berlin", "day", "@Europe/Berlin day", "@Europe/Berlin day"},
			{"berlin", "month", "@Europe/Berlin month", "@Europe/Berlin month"},
			{"berlin", "year", "@Europe/Berlin year", "@Europe/Berlin year"},
			{"plain", "day", "", ""},
			{"plain", "month", "", "@UTC month"},
			{"plain", "year", "", ""},
			{"ring", "month", "", "@UTC.10 month"},
			{"month", "month", "", "@UTC month"},
			{"month", "year", "", ""},
			{"off", "month", "", ""},
			{"bucket", "month", "", ""},
		} {
			want := tc.want
			if months {
				want = tc.withMonths
			}
			policy := plan(set, Global{}, desc(tc.key, "", "k", tc.row)).Batch.Charges[0].Policy
			if got := calendarText(policy); got != want {
				t.Errorf("%s, row %s, months %t: calendar %q, want %q", tc.key, tc.row, months, got, want)
			}
			_, row, _ := strings.Cut(fmt.Sprint(set.Explain("d", desc(tc.key, "", "k", tc.row).Entries)), "row of table")
			if policy.Calendar != nil && !strings.Contains(row, rules.CalendarFields(policy.Calendar)) {
				t.Errorf("%s, row %s, months %t: Explain returns%s", tc.key, tc.row, months, row)
			}
		}
	}
}

// TestRowChangesKeepUsage checks that a counter keeps its usage when a row is added, changed and
// removed.
func TestRowChangesKeepUsage(t *testing.T) {
	opt, table := withTable(t, "")
	set := load(t, opt, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 10, table: t, count_refused: false}}]")
	counters, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	now := limiter.Time(time.Hour)
	passes := func(want int) {
		t.Helper()
		for passed := 0; ; passed++ {
			p := plan(set, Global{}, desc("k", "al"))
			if counters.Decide(now, &p.Batch); p.Batch.Denied {
				if passed != want {
					t.Errorf("%d requests pass, want %d", passed, want)
				}
				return
			}
		}
	}
	passes(10)
	for _, number := range []uint32{12, 5, 20, 0} {
		must.OK(t, table.Put([]string{"k"}, []string{"al"}, tables.Row{RequestsPerUnit: number}))
		passes(map[uint32]int{12: 2, 5: 0, 20: 8, 0: 0}[number])
	}
	table.Delete([]string{"al"})
	passes(0)
}

// TestTableErrors checks tables that rules do not support.
func TestTableErrors(t *testing.T) {
	for file, want := range map[string]string{
		"{key: k, rate_limit: {unit: hour, requests_per_unit: 1, table: s}}":                                                                `a.yaml:2:36: error: domain "d" > key "k": unknown table "s"; did you mean "t"? (known: t)`,
		"{key: kay, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}":                                                              `table "t": column "k" is not an entry of the rule kay (allowed: kay)`,
		"{key: k, value: 'x*', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}":                            `rows cannot apply to this rule`,
		"{key: a, descriptors: [{key: 'k*', rate_limit: {unit: hour, requests_per_unit: 1, table: t}}]}":                                    `column "k" is not an entry of the rule a > k*; did you mean "a"? (allowed: a)`,
		"{key: name, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}":                                                             `or is a field of rows (requests_per_unit, unit, burst, unlimited, name)`,
		"{key: k, descriptors: [{key: a, rate_limits: [{unit: hour, requests_per_unit: 1, table: u}, {unit: day, requests_per_unit: 1}]}]}": `unknown table "u"`,
	} {
		opt, _ := withTable(t, "k,requests_per_unit\nx,1\n")
		set, found := compile(t, opt, "domain: d\ndescriptors: ["+file+"]")
		if err := found.Err(); set != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
	_, found := compile(t, Options{}, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}]")
	if err := found.Err(); err == nil || !strings.Contains(err.Error(), `unknown table "t"; name it with --table t=PATH, or --table t with --tables-dir`) {
		t.Errorf("without tables: %v", err)
	}
}

// TestBurstOfRows has rows with a burst, which only a token bucket uses.
func TestBurstOfRows(t *testing.T) {
	const (
		window = "{key: k, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}"
		bucket = "{key: k, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: token_bucket, table: t}}]}"
	)
	for _, tt := range []struct {
		rules, rows string
		wrong       bool
	}{
		{window, "k,requests_per_unit,burst\nx,1,\n", false},
		{window, "k,requests_per_unit,burst\nx,1,\ny,1,2\n", true},
		{bucket, "k,requests_per_unit,burst\nx,1,2\n", false},
		{"{key: z, rate_limit: {unit: hour, requests_per_unit: 1}}, " + bucket + ", {key: a, descriptors: [" + window + "]}", "k,requests_per_unit,burst\nx,1,2\n", false},
	} {
		opt, _ := withTable(t, tt.rows)
		_, found := compile(t, opt, "domain: d\ndescriptors: ["+tt.rules+"]")
		if err := found.Err(); (err != nil) != tt.wrong || tt.wrong && !strings.Contains(err.Error(), `a.yaml:2:36: error: domain "d" > key "k": table "t": the row of k="y" has a burst`) {
			t.Errorf("%s, %q: %v", tt.rules, tt.rows, err)
		}
	}
}

// TestTableWithoutRows checks that rules need not support the columns of an empty table, which may
// get other columns.
func TestTableWithoutRows(t *testing.T) {
	all := new(tables.Registry)
	e, err := all.Add("t", "")
	must.OK(t, err)
	must.OK(t, e.Put([]string{"k"}, []string{"x"}, tables.Row{}))
	const file = "domain: d\ndescriptors: [{key: other, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}]"
	if set, _ := compile(t, Options{Tables: all}, file); set != nil {
		t.Error("rules that do not support the column of a row were loaded")
	}
	e.Delete([]string{"x"})
	load(t, Options{Tables: all}, file)
}

// TestRowLabelsAreBounded renames rows forever, and checks that a limit remembers at most as many
// labels as a table can have names.
func TestRowLabelsAreBounded(t *testing.T) {
	opt, _ := withTable(t, "")
	set := load(t, opt, "domain: d\ndescriptors: [{key: k, rate_limits: [{unit: hour, requests_per_unit: 1, table: t}]}]")
	u := set.TableUses("t")[0]
	for i := range 2*tables.MaxNames + 1 {
		row := fmt.Sprint("n", i)
		if got := u.label("limit", row); got != "limit: "+row || u.label("limit", row) != got {
			t.Fatalf("the label of %s is %q", row, got)
		}
	}
	if n := len(*u.labels.Load()); n > tables.MaxNames {
		t.Errorf("%d labels are remembered, want %d at most", n, tables.MaxNames)
	}
}

// TestTableWithSeveralColumns has columns in another order than the levels of the rules.
func TestTableWithSeveralColumns(t *testing.T) {
	opt, table := withTable(t, "customer,path,requests_per_unit\nacme,/a,5\n/a,acme,6\n")
	set := load(t, opt, "domain: d\ndescriptors: [{key: path, descriptors: [{key: x, descriptors: [{key: customer, rate_limit: {unit: hour, requests_per_unit: 1, table: t}}]}]}]")
	number := func(path, customer string) uint32 {
		return plan(set, Global{}, desc("path", path, "x", "y", "customer", customer)).Limits[0].RequestsPerUnit
	}
	if a, b, c := number("/a", "acme"), number("acme", "/a"), number("/a", "bo"); a != 5 || b != 6 || c != 1 {
		t.Errorf("limits %d, %d, %d", a, b, c)
	}
	rows, _ := table.Read("t.csv", strings.NewReader("path,requests_per_unit\n/a,9\n"))
	if table.Replace(rows); number("/a", "bo") != 9 {
		t.Error("other columns have no effect")
	}
	rows, _ = table.Read("t.csv", strings.NewReader("nothing,requests_per_unit\n/a,9\n"))
	if err := set.CheckTable("t", *rows.Columns(), ""); err == nil {
		t.Error("a column without a level is accepted")
	}
	if table.Replace(rows); number("/a", "bo") != 1 {
		t.Error("rows with an unsupported column apply")
	}
}

// TestTableFromDefaults has rules that get the field table from defaults, like rules over xDS.
func TestTableFromDefaults(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit\nal,5\n")
	var found rules.Diagnostics
	opt.Defaults, found = rulefile.ParseDefaults("defaults.yaml", []byte("{domain: d, defaults: [{path: [{key: k}], rate_limit: {table: t}}]}"))
	must.OK(t, found.Err())
	set := load(t, opt, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	if got := plan(set, Global{}, desc("k", "al")).Limits[0].RequestsPerUnit; got != 5 {
		t.Errorf("limit %d", got)
	}
}

// TestPlanWithRowsAllocatesNothing includes rows with names, in and outside of lists.
func TestPlanWithRowsAllocatesNothing(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit,unlimited,name\nal,5,,\ngold,6,,gold\nfree,,true,gold\n")
	set := load(t, opt, `
domain: d
descriptors:
  - key: k
    rate_limits: [{unit: minute, requests_per_unit: 60, table: t}, {unit: hour, requests_per_unit: 1000, table: t}]
`)
	req := Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("k", "al"), desc("k", "gold"), desc("k", "free"), desc("k", "bo")}}
	var p Plan
	if n := must.AllocsPerRun(100, func() { set.Plan(&p, &req, Global{}) }); n != 0 || len(p.Limits) != 6 {
		t.Errorf("%v allocations, %d limits", n, len(p.Limits))
	}
}

// TestLimitsWithSameCounterAreChargedOnce has rows that give limits of a list the same window: the
// counter is charged once, with the lower number.
func TestLimitsWithSameCounterAreChargedOnce(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit,unit\nday,10,day\nhour,7,hour\nmany,5000,day\nplain,8,\n")
	for _, test := range []struct{ limits, value, want string }{
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 1000, table: t}", "day", "10/day"},
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 1000, table: t}", "plain", "8/minute 8/day"},
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 1000}", "day", "10/day"},
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 1000}", "many", "1000/day"},
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 1000}", "hour", "7/hour 1000/day"},
		{"{unit: day, requests_per_unit: 1000}, {unit: minute, requests_per_unit: 60, table: t}", "day", "10/day"},
		{"{unit: day, requests_per_unit: 9}, {unit: minute, requests_per_unit: 60, table: t}, {unit: hour, requests_per_unit: 60, table: t}", "day", "9/day"},
		{"{unit: minute, requests_per_unit: 60, table: t}, {unit: day, requests_per_unit: 3, algorithm: sliding_window}", "day", "10/day 3/day"},
		{"{unit: week, requests_per_unit: 1}, {shadow: true, unit: minute, requests_per_unit: 60, table: t}, {shadow: true, unit: hour, requests_per_unit: 1000, table: t}", "day", "1/week 10/day"},
	} {
		set := load(t, opt, "domain: d\ndescriptors: [{key: k, rate_limits: ["+test.limits+"]}]")
		p := plan(set, Global{}, desc("k", test.value))
		got, ids := []string{}, map[identity.ID]bool{}
		for i, l := range p.Limits {
			got, ids[p.Batch.Charges[i].ID] = append(got, fmt.Sprintf("%d/%v", l.RequestsPerUnit, l.Unit)), true
			if p.Batch.Charges[i].Policy != &l.Policy || p.Batch.Charges[i].Policy.Limit != l.RequestsPerUnit {
				t.Errorf("%s: charge %d has the policy of another limit", test.limits, i)
			}
		}
		if text := strings.Join(got, " "); text != test.want || len(ids) != len(p.Limits) || p.Matches[0].Count+len(p.Candidates) != len(got) {
			t.Errorf("%s with the row %s: the charges are %s on %d counters, want %s", test.limits, test.value, text, len(ids), test.want)
		}
	}
}
