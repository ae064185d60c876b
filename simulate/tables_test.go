package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// TestTableRows checks that rows decide their keys. The usage of a key with a row is relative to
// the row's number and window. The recommendation is for the other keys.
func TestTableRows(t *testing.T) {
	set := withRows(t, perUserOfTable, "user,requests_per_unit,unit,unlimited\nlarge,10,,\nhourly,120,hour,\nfree,,,true\nnone,0,,\n")
	var log strings.Builder
	for user, n := range map[string]int{"large": 4, "other": 3, "free": 50, "none": 1} {
		for range n {
			log.WriteString(usersLine(noon, 200, user))
		}
	}
	for range 30 { // in two minutes of one hour
		log.WriteString(usersLine(noon, 200, "hourly") + usersLine(noon.Add(time.Minute), 200, "hourly"))
	}
	log.WriteString(strings.Repeat(usersLine(noon.Add(time.Minute), 200, "large"), 2))
	got := simulateUsers(t, func(o *Options) { o.Rules, o.ShowValues, o.Recommend = set, true, 100 }, logOf("log", log.String())).Rules.Limits[0]
	peaks := map[string]float64{}
	for _, k := range got.TopKeys {
		peaks[k.Name] = k.Peak
	}
	if diff := cmp.Diff(map[string]float64{"user=large": 0.4, "user=other": 1.5, "user=none": 1, "user=hourly": 0.5}, peaks); diff != "" {
		t.Errorf("peaks differ (-want +got):\n%s", diff)
	}
	// The key large has two windows, and the others have one.
	if want := (report.Used{P50: 0.5, P99: 1.5, Max: 1.5}); got.Used != want || got.Over != 2 || got.Hits != 70 {
		t.Errorf("%d of %d hits over, used %+v, want %+v", got.Over, got.Hits, got.Used, want)
	}
	if got.Recommended == nil || got.Recommended.RequestsPerUnit != 3 {
		t.Errorf("the recommendation is %+v, want 3", got.Recommended)
	}
}

// TestMemoryOfTableRows has enough memory for the keys but not for their row limits.
func TestMemoryOfTableRows(t *testing.T) {
	const keys = 28_000
	var rows, log strings.Builder
	rows.WriteString("user,requests_per_unit\n")
	for i := range keys {
		fmt.Fprintf(&rows, "u%d,7\n", i)
		log.WriteString(usersLine(noon.Add(time.Duration(i)*50*time.Millisecond), 200, fmt.Sprint("u", i)))
	}
	for file, fits := range map[string]bool{"user,requests_per_unit\nnobody,7\n": true, rows.String(): false} {
		_, err := Run(t.Context(), Options{
			Logs: []accesslog.Log{logOf("log", log.String())}, Rules: withRows(t, strings.Replace(perUserOfTable, "minute", "second", 1), file), Format: users,
			Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now, Memory: 4 << 20, Reorder: time.Millisecond,
		})
		if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "the statistics of") {
			t.Errorf("Run() with %d bytes of rows and %d keys = %v", len(file), keys, err)
		}
	}
}

const perUserOfTable = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 2, table: plans}}]}"

// withRows compiles rules that use the table plans with the given rows.
func withRows(t *testing.T, text, file string) *descriptors.Set {
	t.Helper()
	all := new(tables.Registry)
	e, err := all.Add("plans", "plans.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, found := e.Read("plans.csv", strings.NewReader(file))
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	e.Replace(rows)
	configs, _ := rulefile.Parse("rules.yaml", []byte(text))
	set, found := descriptors.Compile(configs, descriptors.Options{Tables: all})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}
