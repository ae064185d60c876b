//go:build more

package proxy_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func rulesWithLimit(limit int) string {
	return fmt.Sprintf(`
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: %d, count_refused: false }
`, limit)
}

// TestReloadsUnderLoad changes a limit under load, in a renamed file and in a ConfigMap. The
// counter is kept, so each new limit admits exactly its difference from the previous one.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]interface {
		write(t *testing.T, rules string)
		path() string
	}{
		"rename":    renamedFile{filepath.Join(t.TempDir(), "rules.yaml")},
		"configmap": configMap(t.TempDir()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files.write(t, rulesWithLimit(200))
			limits := startSluice(t, sluice.Options{Args: []string{"--config", files.path()}})
			p := startProxy(t, []listener{
				{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
			}, "", limits)
			window.AwaitHour(t)
			l := startLoad(t, 8, func() (string, error) {
				got, err := p.getFrom(t.Context(), "ingress", "/", "x-user: al")
				limit, _, _ := strings.Cut(got.get("X-Ratelimit-Limit"), ",")
				return fmt.Sprint(got.status, " of ", limit), err
			})
			exhausted := func(limit int) {
				t.Helper()
				denied := fmt.Sprint(http.StatusTooManyRequests, " of ", limit)
				suite.Eventually(t, denied, func() bool { return l.count(denied) > 0 })
				l.awaitAnswers(t, 100)
			}
			exhausted(200)
			files.write(t, rulesWithLimit(500))
			exhausted(500)
			files.write(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: fortnight } }]")
			if err := limits.WaitLine(t.Context(), func(line string) bool {
				return strings.Contains(line, "fortnight")
			}); err != nil {
				t.Fatal(err)
			}
			l.awaitAnswers(t, 100)
			files.write(t, rulesWithLimit(900))
			exhausted(900)

			got := l.stop()
			for _, limit := range []int{200, 500, 900} {
				delete(got, fmt.Sprint(http.StatusTooManyRequests, " of ", limit))
			}
			want := map[string]int{"200 of 200": 200, "200 of 500": 300, "200 of 900": 400}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answers other than denials differ (-want +got):\n%s", diff)
			}
		})
	}
}

// renamedFile is a file that is replaced by a rename.
type renamedFile struct{ file string }

func (r renamedFile) path() string { return r.file }

func (r renamedFile) write(t *testing.T, rules string) {
	t.Helper()
	suite.Replace(t, r.file, rules)
}

// configMap is the mount directory of a ConfigMap.
type configMap string

func (c configMap) path() string { return string(c) }

func (c configMap) write(t *testing.T, rules string) {
	t.Helper()
	must.OK(t, volumetest.Update(string(c), map[string]string{"rules.yaml": rules}))
}
