package concurrency_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// budgets are 10,000 tokens per user, either charged at the end or reserved.
const budgets = `
domain: d
descriptors:
  - { key: plain, rate_limit: { name: plain, unit: year, requests_per_unit: 10000 } }
  - { key: fixed, rate_limit: { name: fixed, unit: year, requests_per_unit: 10000, reserve: { amount: 3400 } } }
  - { key: p90, rate_limit: { name: p90, unit: year, requests_per_unit: 10000, reserve: { p90: true, first: 2000 } } }
`

// TestBudgets sends 100 concurrent requests for each user's budget. Denied requests are repeated
// when the others have ended, until none passes. Spending beyond a budget is at most the cost
// beyond the reservations. Costs are log-normal with median 500 and sigma 1.5, as answers of an LLM
// may be, and the same in each run. The table is in examples/llm-reservation.
func TestBudgets(t *testing.T) {
	t.Parallel()
	const users, requests, budget = 10, 100, 10_000
	var mu sync.Mutex
	costs, arrived := map[string][]int{}, map[string]int{}
	var s *testbed
	s = startTestbed(t, budgets, func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("X-User")
		mu.Lock()
		nth := arrived[r.URL.Path+user]
		arrived[r.URL.Path+user]++
		mu.Unlock()
		holdUntil(s.gate(fmt.Sprint(r.URL.Path, user, nth)))(w, r)
		w.Header().Set("X-Cost", strconv.Itoa(costs[user][nth]))
	})
	rnd := rand.New(rand.NewPCG(1, 2))
	for u := range users {
		for range requests {
			user := strconv.Itoa(u)
			costs[user] = append(costs[user], int(math.Ceil(500*math.Exp(1.5*rnd.NormFloat64()))))
		}
	}
	window.AwaitHour(t)
	rows := []string{"| before a request | admitted | spent of 10,000, on average | at most |\n| --- | --- | --- | --- |"}
	for _, row := range [][2]string{{"plain", "check only"}, {"fixed", "3,400 reserved"}, {"p90", "p90 reserved, 2,000 at first"}} {
		kind, all, most, passed := row[0], 0, 0, 0
		for u := range users {
			user := strconv.Itoa(u)
			n, spent, beyond := s.spend(t, kind, user, costs[user])
			all, most, passed = all+spent, max(most, spent), passed+n
			if kind != "plain" && spent-budget > beyond {
				t.Errorf("%s: %d spent of %d, but requests cost only %d more than reserved", kind, spent, budget, beyond)
			}
		}
		rows = append(rows, fmt.Sprintf("| %s | %d of %d | %d | %d |", row[1], passed, users*requests, all/users, most))
	}
	table := strings.Join(rows, "\n")
	t.Log("\n" + table)
	page, err := os.ReadFile(root + "/examples/llm-reservation/README.md")
	if err != nil || !strings.Contains(string(page), table+"\n") {
		t.Errorf("examples/llm-reservation/README.md does not have this table (%v):\n%s", err, table)
	}
}

// spend concurrently sends one request of a user per cost, repeatedly until none passes. It returns
// the number that passed, their cost, and the part of the cost that they had not reserved.
func (s *testbed) spend(t *testing.T, kind, user string, costs []int) (passed, spent, beyond int) {
	t.Helper()
	for waiting := len(costs); waiting > 0; {
		reserves, denied := s.counter(t, "d", kind, user).Reserves, make(chan struct{}, waiting)
		var clients sync.WaitGroup
		for range waiting {
			clients.Go(func() {
				switch status, err := s.get(t.Context(), user, "/"+kind); {
				case status == http.StatusTooManyRequests:
					denied <- struct{}{}
				case status != http.StatusOK || err != nil:
					t.Errorf("status %d, %v", status, err)
				}
			})
		}
		suite.Eventually(t, "all requests are decided", func() bool { return len(denied)+s.inFlightOf(user) == waiting })
		now := waiting - len(denied)
		if now == 0 {
			break
		}
		for waiting -= now; now > 0; now-- {
			cost := costs[passed]
			s.gate(fmt.Sprint("/", kind, user, passed)) <- struct{}{}
			passed, spent, beyond = passed+1, spent+cost, beyond+max(0, cost-reserves)
			if reserves > 0 || now == 1 { // one at a time, so that the p90 of earlier ones is known
				suite.Eventually(t, fmt.Sprintf("%d hits are charged", spent), func() bool {
					c := s.counter(t, "d", kind, user)
					return c.Used-c.Held.Hits == spent
				})
			}
		}
		clients.Wait()
	}
	return passed, spent, beyond
}
