package main

import (
	"slices"
	"testing"
)

const source = `package p

func (t *table) String() string { return t.a + t.b }

func (t *table) use(n int) error {
	used := t.used + n
	if used > t.limit {
		t.log.Warn("used up", used-1)
		return fmt.Errorf("%d", used-t.limit)
	}
	t.count(
		n)
	t.used = used
	t.calls++
	return nil
}
`

func TestMistakes(t *testing.T) {
	all, err := mistakes("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.oldLine+" => "+m.newLine)
	}
	slices.Sort(got)
	want := []string{
		"if used > t.limit { => if used <= t.limit {",
		"return fmt.Errorf(\"%d\", used-t.limit) => (dropped)",
		"return nil => (dropped)",
		"t.calls++ => (dropped)",
		"t.calls++ => t.calls--",
		"t.count( => (dropped)",
		"t.used = used => (dropped)",
		"used := t.used + n => used := t.used - n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, m := range all {
		if m.oldLine != "t.count(" {
			continue
		}
		dropped := string(m.apply([]byte(source)))
		if want := source[:m.start] + "\n" + source[m.end:]; dropped != want || m.line != 11 {
			t.Errorf("line %d dropped:\n%s", m.line, dropped)
		}
	}
}

func TestFailure(t *testing.T) {
	for _, tt := range []struct{ out, want string }{
		{"ok  \tm/a\t1.0s\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL\nFAIL\tm/b\t0.1s\n", "m/b.TestA"},
		{"panic: test timed out after 10m0s\n\trunning tests:\n\t\tTestA (10m0s)\nFAIL\tm/b\t600.1s\n", "m/b.TestA"},
		{"fatal error: all goroutines are asleep - deadlock!\nFAIL\tm/b\t0.1s\n", "m/b (fatal error: all goroutines are asleep - deadlock!)"},
		{"signal: killed\nFAIL\tm/b\t0.1s\n", "m/b (signal: killed)"},
		{"exit status 3\nFAIL\tm/b\t0.1s\n", "m/b (ends early)"},
		{"FAIL\tm/b [build failed]\n", ""},
		{"ok  \tm/b\t0.1s\n", ""},
	} {
		if got := failure(tt.out); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
