package simulate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// now is the time of the simulation; noon is a day before, in the middle of every window.
var (
	now  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	noon = now.AddDate(0, 0, -1)
)

func compile(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

const perUser = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 3 }
`

func logOf(name, text string) accesslog.Log {
	return accesslog.Log{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func newTemplate(tb testing.TB, text string) *Template {
	tb.Helper()
	t, err := ParseTemplate(text)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// users is the test format: a time, a status and a user.
const users = `%START_TIME% %RESPONSE_CODE% "%REQ(X-USER)%"`

func usersLine(at time.Time, status int, user string) string {
	return fmt.Sprintf("%s %d %q\n", at.Format("2006-01-02T15:04:05.000Z"), status, user)
}

func simulateUsers(t *testing.T, change func(*Options), logs ...accesslog.Log) *report.Report {
	t.Helper()
	o := Options{Logs: logs, Rules: compile(t, perUser), Format: users, Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now}
	if change != nil {
		change(&o)
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestOrderOfDecisions has lines in the order of the requests' ends, in two logs.
func TestOrderOfDecisions(t *testing.T) {
	second := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	one := usersLine(second(5), 429, "al") + usersLine(second(1), 200, "al") + usersLine(second(2), 200, "al")
	two := usersLine(second(4), 429, "al") + usersLine(second(3), 200, "al") + usersLine(second(65), 200, "al")
	var order []int
	report := simulateUsers(t, func(o *Options) {
		o.OnDecision = func(at limiter.Time, recorded, denied bool) {
			s := int(time.Unix(0, int64(at)).Sub(noon) / time.Second)
			order = append(order, s)
			if want := s == 4 || s == 5; denied != want || recorded != want {
				t.Errorf("at second %d: denied is %v and recorded %v, want %v", s, denied, recorded, want)
			}
		}
	}, logOf("one", one), logOf("two", two))
	if got := fmt.Sprint(order); got != "[1 2 3 4 5 65]" {
		t.Errorf("the order is %s", got)
	}
	if r := report.Recorded; r.Denied != 2 || r.Agree != 6 || r.Requests != 6 {
		t.Errorf("Recorded = %+v", *r)
	}
	l := report.Rules.Limits[0]
	if l.Hits != 6 || l.Over != 2 || l.Keys != 1 || l.KeysOver != 1 || l.Used.Max != 5.0/3 {
		t.Errorf("the limit has %+v", l)
	}
}

// TestCandidates simulates a candidate next to a limit: it is counted and decides nothing.
func TestCandidates(t *testing.T) {
	var log strings.Builder
	for range 5 {
		log.WriteString(usersLine(noon, 200, "al"))
	}
	report := simulateUsers(t, func(o *Options) {
		o.ShowValues = true
		o.Rules = compile(t, strings.Replace(perUser, "rate_limit: { unit: minute, requests_per_unit: 3 }",
			"rate_limits: [{ unit: minute, requests_per_unit: 2, shadow: true }, { unit: minute, requests_per_unit: 4 }]", 1))
	}, logOf("log", log.String()))
	if report.Rules.Denied != 1 || len(report.Rules.Limits) != 2 {
		t.Fatalf("%+v", report.Rules)
	}
	l := report.Rules.Limits[1]
	if title := l.Title(); title != "user 2/minute (shadow)" || !l.Shadow || l.Hits != 5 || l.Over != 3 || l.TopKeys[0].Name != "user=al" {
		t.Errorf("the candidate is %q, %+v", title, l)
	}
}

// TestBadLines has unreadable lines among readable ones.
func TestBadLines(t *testing.T) {
	log := usersLine(noon, 200, "al") +
		"nonsense\n" +
		"\n" + // empty lines do not count
		usersLine(now.Add(time.Hour), 200, "al") + // in the future
		"2026-11-21T12:00:00Z 200 \"" + strings.Repeat("x", 1<<20) + "\"\n" +
		"2026-11-99T12:00:00Z 200 \"al\"\n" +
		"2026-11-21T12:00:00Z 200 \"n\x00l\"\n" +
		strings.TrimSuffix(usersLine(noon.Add(time.Second), 200, "bo"), "\n")
	report := simulateUsers(t, nil, logOf("log", log))
	if report.Requests != 3 || report.Bad != 4 || report.Lines != 7 || report.Rules.Keys != 3 {
		t.Errorf("%d requests of %d lines, %d bad lines, %d keys, want 3, 7, 4, 3", report.Requests, report.Lines, report.Bad, report.Rules.Keys)
	}
	want := []string{
		`log:2:1: line does not match the format: "nonsense"`,
		`log:4:1: time "2026-11-22T13:00:00.000Z" is in the future: "2026-11-22T13:00:00.000Z 200 \"al\""`,
		`log:5:1: line is longer than 1 MiB: "2026-11-21T12:00:00Z 200 \"xxxxxxxxxxxxxx..."`,
		`log:6:1: "2026-11-99T12:00:00Z": not a time; want 2026-11-22T09:00:00.123Z or seconds since 1970: "2026-11-99T12:00:00Z 200 \"al\""`,
	}
	for i, bad := range report.FirstBad {
		if i >= len(want) || bad.String() != want[i] {
			t.Errorf("bad line %d is %s", i, bad)
		}
	}
}

// TestLateLines has a line that is more than a window late.
func TestLateLines(t *testing.T) {
	log := usersLine(noon, 200, "al") + usersLine(noon.Add(3*time.Minute), 200, "al") + usersLine(noon.Add(time.Second), 200, "al") +
		usersLine(noon.Add(2*time.Minute+time.Second), 200, "al")
	report := simulateUsers(t, nil, logOf("log", log))
	if report.Requests != 3 || report.Late != 1 {
		t.Errorf("%d requests, %d late, want 3, 1", report.Requests, report.Late)
	}
}

// TestLineAhead has one line, in the second of two logs, that is 20 minutes ahead of the lines after
// it. The report names it.
func TestLineAhead(t *testing.T) {
	var sorted, ahead strings.Builder
	const lines, wrong = 3000, 1234
	for n := range lines {
		at := noon.Add(time.Duration(n) * time.Second)
		sorted.WriteString(usersLine(at, 200, "al"))
		if n+1 == wrong {
			at = at.Add(20 * time.Minute)
		}
		ahead.WriteString(usersLine(at, 200, "al"))
	}
	got := simulateUsers(t, nil, logOf("sorted", sorted.String()), logOf("ahead", ahead.String()))
	want := &report.AheadLine{Log: "ahead", Line: wrong, Seconds: 1199}
	if got.Late == 0 || got.Ahead == nil || *got.Ahead != *want {
		t.Errorf("%d lines are late because of %v, want %v", got.Late, got.Ahead, want)
	}
	var text strings.Builder
	must.OK(t, got.WriteText(&text))
	if want := "ahead:1234 is 19m59s ahead of later lines; correct or remove that line, sort"; !strings.Contains(text.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, text.String())
	}
}

// TestResultIsIndependentOfWorkers compares reports byte by byte, for logs of several chunks.
func TestResultIsIndependentOfWorkers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var logs []accesslog.Log
	for i := range 3 {
		var b strings.Builder
		for s := range 20_000 {
			b.WriteString(usersLine(noon.Add(time.Duration(s)*20*time.Millisecond-time.Duration(random.IntN(5000))*time.Millisecond), 200+229*random.IntN(2), fmt.Sprint("u", random.IntN(500))))
			if random.IntN(1000) == 0 {
				b.WriteString("nonsense\n")
			}
		}
		logs = append(logs, logOf(fmt.Sprint("log", i), b.String()))
	}
	var want string
	for _, workers := range []int{1, 2, 7} {
		report := simulateUsers(t, func(o *Options) {
			o.Workers = workers
			o.Against = []Alternative{{"less.yaml", compile(t, strings.Replace(perUser, ": 3", ": 2", 1))}}
			o.ShowValues = true
		}, logs...)
		var b bytes.Buffer
		if err := report.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = b.String()
		}
		if got := b.String(); got != want {
			t.Errorf("with %d goroutines:\n%s\nwant\n%s", workers, got, want)
		}
	}
	if !strings.Contains(want, "60,000 requests") {
		t.Errorf("the report is\n%s", want)
	}
}

func TestGzipAndStandardInput(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprint(w, usersLine(noon, 200, "al")+usersLine(noon, 200, "bo"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	report := simulateUsers(t, nil, accesslog.FromStream("stdin", &zipped))
	if report.Requests != 2 || report.Rules.Keys != 2 {
		t.Errorf("%d requests, %d keys, want 2, 2", report.Requests, report.Rules.Keys)
	}
}

// TestEvictionIsAnError gives counters less memory than they need.
func TestEvictionIsAnError(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		b.WriteString(usersLine(noon, 200, fmt.Sprint("u", i)))
	}
	_, err := Run(t.Context(), Options{
		Logs: []accesslog.Log{logOf("log", b.String())}, Rules: compile(t, perUser), Format: users,
		Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now, Memory: limiter.MinBytes,
	})
	if err == nil || !strings.Contains(err.Error(), "--counter-memory") {
		t.Errorf("Run() = %v, want an error that names --counter-memory", err)
	}
}

// TestMemoryOfKeysAndQueue has less memory than the keys of expired counters need, and than the
// requests of a minute need.
func TestMemoryOfKeysAndQueue(t *testing.T) {
	const keys = 40_000
	var many, same strings.Builder
	for i := range keys {
		many.WriteString(usersLine(noon.Add(time.Duration(i)*50*time.Millisecond), 200, fmt.Sprint("u", i)))
		same.WriteString(usersLine(noon, 200, strings.Repeat("a", 50)))
	}
	run := func(log, reorder string, show bool) error {
		window, err := time.ParseDuration(reorder)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(t.Context(), Options{
			Logs: []accesslog.Log{logOf("log", log)}, Rules: compile(t, strings.Replace(perUser, "minute", "second", 1)), Format: users, ShowValues: show,
			Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now, Memory: 4 << 20, Reorder: window,
		})
		return err
	}
	if err := run(many.String(), "1s", false); err == nil || !strings.Contains(err.Error(), "keys do not fit into memory (0 requests have not ended); raise --counter-memory, or shorten the time range") {
		t.Errorf("Run() with %d keys = %v", keys, err)
	}
	var long strings.Builder
	for i := range 60 { // keys that together exceed the memory
		long.WriteString(usersLine(noon.Add(time.Duration(i)*time.Second), 200, fmt.Sprint(i, strings.Repeat("a", 100_000))))
	}
	if err := run(long.String(), "1ms", true); err == nil || !strings.Contains(err.Error(), "keys do not fit") {
		t.Errorf("Run() with long shown keys = %v", err)
	}
	if err := run(long.String(), "1ms", false); err != nil {
		t.Errorf("Run() with long hidden keys = %v", err)
	}
	if err := run(same.String(), "1m", false); err == nil || !strings.Contains(err.Error(), "do not fit into memory; reduce --reorder") {
		t.Errorf("Run() with %d simultaneous lines = %v", keys, err)
	}
}

// TestMemoryIsShared checks the division of memory among rules.
func TestMemoryIsShared(t *testing.T) {
	o := &Options{Memory: 64 << 20, Against: make([]Alternative, 3)}
	s, err := newVariant(compile(t, perUser), "rules", o)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.table.Stats().Bytes; got != 16<<20 {
		t.Errorf("the memory of the counters is %d bytes, want 16 MiB", got)
	}
}

// TestOrderWithinMilliseconds has lines a few milliseconds apart in any order.
func TestOrderWithinMilliseconds(t *testing.T) {
	var log strings.Builder
	for _, ms := range []int{7, 3, 9, 1, 5} {
		log.WriteString(usersLine(noon.Add(time.Duration(ms)*time.Millisecond), 200, "al"))
	}
	var order []int64
	simulateUsers(t, func(o *Options) {
		o.OnDecision = func(at limiter.Time, _, _ bool) { order = append(order, (int64(at)-noon.UnixNano())/1e6) }
	}, logOf("log", log.String()))
	if got := fmt.Sprint(order); got != "[1 3 5 7 9]" {
		t.Errorf("the order is %s", got)
	}
}

// TestOneHashPerClient has two limits of a client, and a stricter alternative with another algorithm.
// All of them show the client with the same hash, and another client with another.
func TestOneHashPerClient(t *testing.T) {
	rules := func(limits string) *descriptors.Set {
		return compile(t, strings.Replace(perUser, "rate_limit: { unit: minute, requests_per_unit: 3 }", limits, 1))
	}
	var log strings.Builder
	for range 9 {
		log.WriteString(usersLine(noon, 200, "al") + usersLine(noon, 200, "al") + usersLine(noon, 200, "bo"))
	}
	report := simulateUsers(t, func(o *Options) {
		o.Rules = rules("rate_limits: [{ unit: minute, requests_per_unit: 2 }, { unit: hour, requests_per_unit: 3 }]")
		o.Against = []Alternative{{Name: "stricter", Rules: rules("rate_limit: { unit: minute, requests_per_unit: 1, algorithm: token_bucket }")}}
	}, logOf("log", log.String()))
	names := map[string]int{}
	for _, l := range append(report.Rules.Limits, report.Against[0].Limits...) {
		for _, k := range l.TopKeys {
			names[k.Name]++
		}
	}
	if len(names) != 2 {
		t.Errorf("two clients have the names %v", names)
	}
}
