package proxy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// writeTable replaces the file of a table as careful writers do.
func writeTable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// TestRowsOfATable has a file of numbers by customer changed while Envoy asks. Rules are not loaded again, and counters
// keep their counts.
func TestRowsOfATable(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "users.csv")
	writeTable(t, table, "user,requests_per_unit\nal,5\nzero,0\n")
	limits := startSluice(t, sluice.Options{Args: []string{"--table", "users=" + table, "--config", writeRules(t, `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3, table: users, count_refused: false }
`)}})
	p := startProxy(t, []listener{
		{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
	}, "", limits)
	window.AwaitHour(t)
	passes := func(user string, want, limit int) {
		t.Helper()
		var told string
		for passed := 0; ; passed++ {
			got, err := p.ask(t.Context(), "ingress", "/", "x-user: "+user)
			if err != nil {
				t.Fatal(err)
			}
			told, _, _ = strings.Cut(got.get("X-Ratelimit-Limit"), ",")
			if got.status == http.StatusTooManyRequests {
				if passed != want || told != fmt.Sprint(limit) {
					t.Errorf("%s: %d requests passed, and the limit is told as %s; want %d and %d", user, passed, told, want, limit)
				}
				return
			}
		}
	}
	await := func(rows int) {
		t.Helper()
		said := fmt.Sprintf(`"table":"users","rows":%d,`, rows)
		suite.Eventually(t, said, func() bool { return strings.Contains(limits.Log(), said) })
	}
	passes("al", 5, 5)
	passes("zero", 0, 0)
	passes("bo", 3, 3) // the rule's own
	writeTable(t, table, "user,requests_per_unit,unlimited\nal,7,\nbo,4,\nfree,,true\n")
	await(3)
	passes("al", 2, 7)
	passes("bo", 1, 4)
	passes("zero", 3, 3)
	for range 10 {
		if got, err := p.ask(t.Context(), "ingress", "/", "x-user: free"); err != nil || got.status != http.StatusOK {
			t.Errorf("an unlimited row: %v, %v", got.status, err)
		}
	}
	writeTable(t, table, "user,requests_per_unit\nal,10\nbo,many\n")
	if err := limits.WaitLine(t.Context(), func(line string) bool {
		return strings.Contains(line, table+":3:4: ") && strings.Contains(line, "many")
	}); err != nil {
		t.Fatal(err)
	}
	passes("al", 0, 7)
	if n := strings.Count(limits.Log(), "rules loaded"); n != 1 {
		t.Errorf("rules were loaded %d times", n)
	}
}
