package envoyconfig_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// mutation is a change of the bootstrap in testdata/rejected.
type mutation struct {
	line string // line of mutations.txt, without the verdict
	text string // bootstrap with the change
	// rejected is true if Envoy rejects the changed bootstrap, and missed if envoyconfig's verdict
	// differs.
	rejected, missed bool
}

// mutations reads testdata/rejected.
func mutations(t *testing.T) (all []mutation) {
	t.Helper()
	base, err := os.ReadFile(filepath.Join("testdata", "rejected", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join("testdata", "rejected", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n")
	for line := range strings.SplitSeq(string(list), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verdict, change, _ := strings.Cut(line, " ")
		old, put, ok := strings.Cut(change, " =>")
		old, put = unescape.Replace(old), unescape.Replace(strings.TrimPrefix(put, " "))
		m := mutation{line: change, text: strings.Replace(string(base), old, put, 1), rejected: strings.HasPrefix(verdict, "rejected"), missed: strings.HasSuffix(verdict, "!")}
		if !ok || m.text == string(base) || !m.rejected && !strings.HasPrefix(verdict, "accepted") {
			t.Fatalf("mutations.txt: %s", line)
		}
		all = append(all, m)
	}
	return all
}

// TestMutationVerdicts compares the verdict of Read on each mutation with Envoy's in mutations.txt.
// Known differences have an exclamation mark there.
func TestMutationVerdicts(t *testing.T) {
	agreed := 0
	all := mutations(t)
	for _, m := range all {
		_, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: []byte(m.text)}})
		if (err != nil) == m.rejected {
			agreed++
		}
		if ((err != nil) == m.rejected) == m.missed {
			t.Errorf("%s: rejected by Envoy: %v, marked as missed: %v, Read returned %v", m.line, m.rejected, m.missed, err)
		}
	}
	t.Logf("%d of %d mutations have the verdict of Envoy", agreed, len(all))
}

// TestEnvoyRejectsMutations checks the verdicts of mutations.txt with the real Envoy: all at effort
// 100, one in four at effort 10, one in 40 at effort 1. Several run concurrently, because each spends
// most of its time waiting for its threads.
func TestEnvoyRejectsMutations(t *testing.T) {
	binary := suite.Envoy(t, root)
	dir := t.TempDir()
	var g errgroup.Group
	g.SetLimit(8)
	step := max(1, 40/effort.Level(t))
	for i, m := range mutations(t) {
		if i%step != 0 {
			continue
		}
		g.Go(func() error {
			file := filepath.Join(dir, strconv.Itoa(i)+".yaml")
			if err := os.WriteFile(file, []byte(m.text), 0o600); err != nil {
				return err
			}
			if err := envoy.Validate(t.Context(), binary, file); (err != nil) != m.rejected {
				t.Errorf("%s: want rejected %v, Envoy returned %v", m.line, m.rejected, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
