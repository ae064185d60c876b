package proxy_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// firstRows is the first content of the table users of the shared sluice.
const firstRows = "user,requests_per_unit\nal,5\nzero,0\n"

var startRows = share("rows", `
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3, table: users, count_refused: false }
`, listener{routes: everyUser})

// TestTableRows changes a table of limits per customer while Envoy sends calls. Rules are not
// reloaded, and counters are kept.
func TestTableRows(t *testing.T) {
	p, limits := startRows(t)
	table := shared.table
	passes := func(user string, want, limit int) {
		t.Helper()
		var limitHeader string
		for passed := 0; ; passed++ {
			got, err := p.getFrom(t.Context(), p.ingress, "/", "x-user: "+user)
			must.OK(t, err)
			limitHeader, _, _ = strings.Cut(got.get("X-Ratelimit-Limit"), ",")
			if got.status == http.StatusTooManyRequests {
				if passed != want || limitHeader != strconv.Itoa(limit) {
					t.Errorf("%s: %d requests passed with limit %s in the header, want %d and %d", user, passed, limitHeader, want, limit)
				}
				return
			}
		}
	}
	await := func(rows int) {
		t.Helper()
		logged := fmt.Sprintf(`"table":"users","rows":%d}`, rows)
		suite.Eventually(t, logged, func() bool { return strings.Contains(limits.Log(), logged) })
	}
	passes("al", 5, 5)
	passes("zero", 0, 0)
	passes("bo", 3, 3) // the limit of the rule
	suite.Replace(t, table, "user,requests_per_unit,unlimited\nal,7,\nbo,4,\nfree,,true\n")
	await(3)
	passes("al", 2, 7)
	passes("bo", 1, 4)
	passes("zero", 3, 3)
	for range 10 {
		if got, err := p.getFrom(t.Context(), p.ingress, "/", "x-user: free"); err != nil || got.status != http.StatusOK {
			t.Errorf("an unlimited row: %v, %v", got.status, err)
		}
	}
	suite.Replace(t, table, "user,requests_per_unit\nal,10\nbo,many\n")
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
