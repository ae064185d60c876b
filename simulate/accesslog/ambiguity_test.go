package accesslog

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestAmbiguityMatchesAllReadings compares the unambiguous values of a line with all its readings.
func TestAmbiguityMatchesAllReadings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`"`, ` `, `" "`, `a`, `1`, `-`, `;`}
	formats := []string{`%REQ(A)% "%REQ(B)%" "%REQ(C)%"`, `[%REQ(A)%] %RESPONSE_CODE% "%REQ(B)%";%REQ(C)%`, `%REQ(A)%" "%PROTOCOL%" "%REQ(B)%" %REQ(C)%`}
	ambiguous := 0
	for range 20_000 {
		format := formats[random.IntN(len(formats))]
		f, err := newTextFormat(format)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i, literal := range f.literals {
			b.Write(literal)
			for range random.IntN(3) {
				if i < len(f.ops) {
					b.WriteString(pieces[random.IntN(len(pieces))])
				}
			}
		}
		line := b.String()
		all := readings(f, line, 0, true)
		strict := len(all)
		if strict == 0 {
			// A value of the wrong class is accepted if the line has only one reading.
			if all = readings(f, line, 0, false); len(all) > 1 {
				all = nil
			}
		}
		of := newFormat(f)
		var slots []int
		for _, op := range f.ops {
			slots = append(slots, of.Select(op.name))
		}
		if err := of.Prepare(); err != nil {
			t.Fatal(err)
		}
		v := newLine(of.layout)
		err = f.parse([]byte(line), v)
		if err == nil && len(all) == 0 || err != nil && strict > 0 {
			t.Fatalf("read(%q) by %q = %v, with %d readings", line, format, err, len(all))
		}
		if err != nil {
			continue
		}
		for i, slot := range slots {
			same := true
			for _, values := range all {
				same = same && values[i] == all[0][i]
			}
			want := all[0][i]
			if isAbsent([]byte(want)) {
				want = ""
			}
			switch {
			case !same && !v.IsAmbiguous(slot):
				t.Fatalf("read(%q) by %q: value %d is unambiguous, %q, but readings are %q", line, format, i, v.values[slot], all)
			case len(all) == 1 && (v.IsAmbiguous(slot) || string(v.values[slot]) != want):
				t.Fatalf("read(%q) by %q: value %d is %q, want %q", line, format, i, v.values[slot], want)
			case !same:
				ambiguous++
			}
		}
	}
	if ambiguous < 1000 {
		t.Errorf("%d ambiguous values, want many", ambiguous)
	}
}

// readings returns all readings of a line from literal i.
func readings(f *textFormat, line string, i int, strict bool) [][]string {
	remainder, ok := strings.CutPrefix(line, string(f.literals[i]))
	if !ok {
		return nil
	}
	if i == len(f.ops) {
		if remainder != "" {
			return nil
		}
		return [][]string{nil}
	}
	var all [][]string
	for n := range len(remainder) + 1 {
		if strict && !f.ops[i].fits([]byte(remainder[:n])) {
			continue
		}
		for _, tail := range readings(f, remainder[n:], i+1, strict) {
			all = append(all, append([]string{remainder[:n]}, tail...))
		}
	}
	return all
}
