package e2e_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// tablesAt starts sluice with a table that is changed by row.
func tablesAt(t *testing.T, dir string, prepare func(*exec.Cmd)) *sluice.Sluice {
	t.Helper()
	rules := filepath.Join(dir, "rules.yaml")
	suite.Replace(t, rules, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 3, table: users}}]")
	return suite.StartSluice(t, sluice.Options{
		Binary: programs.sluice, Args: []string{"--config", rules, "--table", "users", "--tables-dir", dir}, Prepare: prepare,
	})
}

// errRejected is returned for a status other than OK.
var errRejected = errors.New("rejected")

// sendRows sends one or more rows and returns the answer.
func sendRows(s *sluice.Sluice, method, path, body string) (string, error) {
	request, err := http.NewRequest(method, "http://"+s.Addr("debug")+"/api/v1/tables/users"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s", errRejected, text)
	}
	return string(text), err
}

// rowNumbers returns the limit of each row.
func rowNumbers(t *testing.T, s *sluice.Sluice) map[string]int64 {
	t.Helper()
	text, err := sendRows(s, http.MethodGet, "", "")
	must.OK(t, err)
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	must.OK(t, err)
	all := map[string]int64{}
	for _, record := range records[min(1, len(records)):] {
		n, err := strconv.ParseInt(record[1], 10, 64)
		must.OK(t, err)
		all[record[0]] = n
	}
	return all
}

// TestKillsLoseNoRows kills sluice while rows are written, individually and in batches, so that the
// journal is rewritten continuously. Each row has the last acknowledged value or the one in
// transit, and batches are atomic.
func TestKillsLoseNoRows(t *testing.T) {
	const rounds, writers, at = 4, 3, 2000
	dir := t.TempDir()
	var sent, acknowledged [writers]atomic.Int64
	last := make([]int64, writers)
	for round := range rounds {
		s := tablesAt(t, dir, nil)
		got := rowNumbers(t, s)
		for w := range writers {
			low, high := acknowledged[w].Load(), sent[w].Load()
			n := got[fmt.Sprintf("one-%d", w)]
			if n < low || n > high {
				t.Errorf("round %d, writer %d: the row has %d; %d was acknowledged, %d sent last", round, w, n, low, high)
			}
			for i := range at {
				if many := got[fmt.Sprintf("many-%d-%d", w, i)]; many < low-1 || many > high || many != got[fmt.Sprintf("many-%d-0", w)] {
					t.Fatalf("round %d, writer %d: row %d has %d, the first %d; %d was acknowledged, %d sent last", round, w, i, many, got[fmt.Sprintf("many-%d-0", w)], low, high)
				}
			}
			last[w] = high
		}
		var group sync.WaitGroup
		enough := make(chan struct{}, writers*100)
		for w := range writers {
			group.Go(func() {
				for n := last[w] + 1; ; n++ {
					sent[w].Store(n)
					var b strings.Builder
					b.WriteString("user,requests_per_unit\n")
					for i := range at {
						fmt.Fprintf(&b, "many-%d-%d,%d\n", w, i, n)
					}
					if _, err := sendRows(s, http.MethodPost, "", b.String()); err != nil {
						return // killed
					}
					if _, err := sendRows(s, http.MethodPut, fmt.Sprintf("/one-%d", w), fmt.Sprintf("requests_per_unit=%d", n)); err != nil {
						return
					}
					acknowledged[w].Store(n)
					if n-last[w] == int64(6+round) {
						enough <- struct{}{}
					}
				}
			})
		}
		<-enough // other clients continue
		s.Kill()
		group.Wait()
	}
}

// TestFullDiskRejectsRows simulates a full disk by a limit on the size of files. A row that cannot
// be saved is rejected and does not become active, and acknowledged rows stay.
func TestFullDiskRejectsRows(t *testing.T) {
	dir := t.TempDir()
	s := tablesAt(t, dir, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `ulimit -f 16; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...) // 8 or 16 KiB
		cmd.Path = "/bin/sh"
	})
	put, key := 0, strings.Repeat("k", 500)
	for ; ; put++ {
		_, err := sendRows(s, http.MethodPut, fmt.Sprintf("/%s%d", key, put), "requests_per_unit=7")
		if errors.Is(err, errRejected) {
			if !strings.Contains(err.Error(), "not saved, and not active: ") {
				t.Errorf("the first rejection is %v", err)
			}
			break
		}
		if err != nil || put > 100 {
			t.Fatalf("after %d rows: %v", put, err)
		}
	}
	if got := rowNumbers(t, s); len(got) != put || got[fmt.Sprint(key, put)] != 0 {
		t.Errorf("%d rows are active, want %d", len(got), put)
	}
	if _, err := sendRows(s, http.MethodPut, "/small", "requests_per_unit=8"); err != nil {
		t.Errorf("a row that fits: %v", err)
	}
	for _, logged := range []string{"failed to save a table; changes of its rows are rejected until it can be saved", "table saved again"} {
		suite.Eventually(t, logged, func() bool { return strings.Contains(s.Log(), logged) }) // logging is asynchronous
	}
	s.Kill()
	if got := rowNumbers(t, tablesAt(t, dir, nil)); len(got) != put+1 || got["small"] != 8 {
		t.Errorf("%d rows exist afterwards, want %d", len(got), put+1)
	}
}
