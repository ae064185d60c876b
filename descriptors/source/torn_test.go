package source

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// fileOf returns 4 KiB of rules, each of whose limits is the version. A prefix of it is never
// valid, since the whole text is within one bracket that the last byte closes. Nested lists would
// be valid at the end of a line.
func fileOf(version int) string {
	var b strings.Builder
	b.WriteString("{ domain: d, descriptors: [\n")
	for i := 0; b.Len() < 4<<10; i++ {
		fmt.Fprintf(&b, "  { key: key%d, rate_limit: { unit: hour, requests_per_unit: %d } },\n", i, version)
	}
	b.WriteString("]}")
	return b.String()
}

// linesOf returns the same rules in lines; each prefix that ends with a line is valid.
func linesOf(version int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := 0; b.Len() < 4<<10; i++ {
		fmt.Fprintf(&b, "  - { key: key%d, rate_limit: { unit: hour, requests_per_unit: %d } }\n", i, version)
	}
	return b.String()
}

// torn is a followed file, with the active rules and the reported errors.
type torn struct {
	t      *testing.T
	path   string
	source *Files
	active Update
	errors []error
}

func newTorn(t *testing.T, text string) *torn {
	t.Helper()
	w := &torn{t: t, path: filepath.Join(t.TempDir(), "rules.yaml")}
	w.write(text)
	w.source = NewFiles(Options{Paths: []string{w.path}, Settle: time.Nanosecond, OnLoad: w.apply})
	start(t, w.source)
	if w.active.Set == nil {
		t.Fatal(w.errors)
	}
	return w
}

func (w *torn) write(text string) {
	must.OK(w.t, os.WriteFile(w.path, []byte(text), 0o600))
}

func (w *torn) apply(u Update) error {
	if u.Err != nil {
		w.errors = append(w.errors, u.Err)
		return u.Err
	}
	w.active = u
	return nil
}

// poll reads the file until two readings agree; next is called between two readings.
func (w *torn) poll(next func()) { poll(w.t.Context(), w.source.asGroup(), next) }

// checkActive checks that all active limits are of the given version, and none is missing.
func (w *torn) checkActive(when string, version int) {
	w.t.Helper()
	got := 0
	for _, l := range w.active.Set.Limits {
		if l.RequestsPerUnit == uint32(version) {
			got++
		}
	}
	if want := strings.Count(fileOf(version), "key:"); got != want || len(w.active.Set.Limits) != want {
		w.t.Fatalf("%s: %d limits are active, %d of version %d; want %d", when, len(w.active.Set.Limits), got, version, want)
	}
}

var positionInFile = regexp.MustCompile(`rules\.yaml:\d+:\d+: error: `)

// TestEveryPrefixOfNewFile has a writer that stops after any byte: the file contains a prefix of
// the rules, followed by nothing or by zeros as after a power failure. It is rejected once, with a
// position, and the old rules stay. When the file is complete, it is activated.
func TestEveryPrefixOfNewFile(t *testing.T) {
	t.Parallel()
	next := fileOf(2)
	for zeros, name := range []string{"nothing follows", "zeros follow"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTorn(t, fileOf(1))
			for n := 0; n < len(next); n += stride(t, 1+4*zeros) {
				w.write(next[:n] + strings.Repeat("\x00", zeros*(len(next)-n)))
				w.errors = nil
				w.poll(func() {})
				when := fmt.Sprintf("%d of %d bytes, %s", n, len(next), name)
				w.checkActive(when, 1)
				if len(w.errors) != 1 || !positionInFile.MatchString(w.errors[0].Error()) {
					t.Fatalf("%s: the errors are %v, want one with its position", when, w.errors)
				}
			}
			w.write(next)
			w.poll(func() {})
			w.checkActive("whole", 2)
		})
	}
}

// TestEveryPauseOfWriter has a writer that pauses after any byte and continues before the second
// reading. The prefix is never activated, even if it is valid.
func TestEveryPauseOfWriter(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]func(version int) string{"in brackets": fileOf, "in lines": linesOf} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTorn(t, text(1))
			activated := 0
			w.source.reload.OnLoad = func(u Update) error { activated++; return w.apply(u) }
			for n := 0; n <= len(text(2)); n += stride(t, 9) {
				version := 2 + n%2
				next := text(version)
				w.write(next[:n] + text(5 - version)[n:]) // overwrites the old text
				if n%3 > 0 {
					w.write(next[:n]) // after a truncation
				}
				activated = 0
				w.poll(func() { w.write(next) })
				w.write(next) // the change was not observed before
				w.poll(func() {})
				when := fmt.Sprintf("after a pause at %d of %d bytes", n, len(next))
				w.checkActive(when, version)
				if activated != 1 || len(w.errors) > 0 {
					t.Fatalf("%s: %d sets were activated and %v rejected, want one and none", when, activated, w.errors)
				}
			}
		})
	}
}

// stride is the distance in bytes between the positions at which writers stop: n from effort 10 on.
func stride(tb testing.TB, n int) int {
	tb.Helper()
	if effort.Level(tb) < effort.More {
		return 38 + n
	}
	return n
}
