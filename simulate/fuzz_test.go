package simulate

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// fuzzReader reads bytes as lines of a format. Whatever they are, each line is read, bad,
// or asks nothing.
func fuzzReader(f *testing.F, format string, sample, descriptor string, more ...string) {
	f.Helper()
	o := &Options{Rules: compile(f, perUser), Format: format, Now: now, Templates: []*Template{newTemplate(f, descriptor)}, Logs: []Input{logOf("log", sample)}}
	o.fill()
	r, err := newReader(o)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range append(more, sample, sample+sample, strings.ReplaceAll(sample, `"`, `""`), strings.ReplaceAll(sample, "a", "\x00"),
		strings.ReplaceAll(sample, "2026", "2099"), sample[:len(sample)/2], strings.Repeat(`" "`, 100), "\n\n\r\n", strings.Repeat("[", 100), strings.Repeat(`{"a":`, 100)) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b := newReading(r).chunk(chunk{bytes: bytes.Clone(text)})
		unknown := 0
		for _, n := range b.unknown {
			unknown += n
		}
		if got := len(b.lines) + b.bad + b.silent + b.outside + unknown; got != b.read {
			t.Errorf("%d decided, %d bad, %d silent, %d outside, %d unknown of %d lines of %q", len(b.lines), b.bad, b.silent, b.outside, unknown, b.read, text)
		}
		var rec record
		run := run{}
		for _, w := range b.lines {
			if w.at < 0 || w.at > now.UnixNano() {
				t.Errorf("time %d of %q", w.at, text)
			}
			rec.read(b.arena[w.offset:])
			for range rec.calls {
				rec.next(&run.req)
				if len(run.req.Domain) == 0 || len(run.req.Descriptors) == 0 {
					t.Errorf("request is %+v of %q", run.req, text)
				}
			}
		}
	})
}

func FuzzText(f *testing.F) {
	fuzzReader(f, "auto", `[2026-11-21T09:00:00.123Z] "GET /a?b HTTP/1.1" 200 - 0 28 1 0 "192.0.2.1" "curl/8" "id" "a.example" "10.0.0.1:80"`+"\n", "user={user-agent}")
}

func FuzzFormat(f *testing.F) {
	fuzzReader(f, `%START_TIME(%s.%3f)%;%REQ(A)%;%RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%`, `1763715600.123;a;200 {"domain":"d","descriptors":[{"entries":["a=b"],"hitsAddend":2,"limit":"requests_per_unit:5 unit:HOUR"}]}`+"\n", "user={a}")
}

func FuzzJSON(f *testing.F) {
	fuzzReader(f, "auto", `{"start_time":"2026-11-21T09:00:00.123Z","user-agent":"a\u0041","response_code":200,"x":[{"y":null}]}`+"\n", "user={user-agent}")
}

func FuzzOTLP(f *testing.F) {
	fuzzReader(f, "auto", `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1763715600000000000","attributes":[{"key":"a","value":{"stringValue":"a"}}]}]}]}]}`+"\n", "user={a}")
}

func FuzzCSV(f *testing.F) {
	fuzzReader(f, "auto", "time,a\n2026-11-21T09:00:00Z,\"a\"\"b\"\n", "user={a}")
}

func FuzzRequests(f *testing.F) {
	fuzzReader(f, "requests", `{"time":"2026-11-21T09:00:00Z","domain":"d","hits":2,"descriptors":[{"entries":[["a","b"]],"hits":3,"refund":true,"limit":"5/hour"}]}`+"\n", "user={a}")
}

func FuzzInstant(f *testing.F) {
	for _, s := range []string{"2026-11-21T09:00:00.123Z", "2026-11-21T09:00:00+01:00", "1763715600", "1763715600.5", "1763715600123", "9223372036854775807", "2262-01-01T00:00:00Z"} {
		f.Add([]byte(s))
	}
	clock, err := newStrftime("%d/%b/%Y:%H:%M:%S.%f %z")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if at, err := parseInstant(b); err == nil && at < 0 {
			t.Errorf("parseInstant(%q) = %d", b, at)
		}
		if at, err := clock.parse(b); err == nil && at < -math.MaxInt64/2 {
			t.Errorf("parse(%q) = %d", b, at)
		}
	})
}

// TestReadingsAreAll compares what is certain of a line with all readings that there are.
func TestReadingsAreAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`"`, ` `, `" "`, `a`, `1`, `-`, `;`}
	formats := []string{`%REQ(A)% "%REQ(B)%" "%REQ(C)%"`, `[%REQ(A)%] %RESPONSE_CODE% "%REQ(B)%";%REQ(C)%`, `%REQ(A)%" "%PROTOCOL%" "%REQ(B)%" %REQ(C)%`}
	unsure := 0
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
			// A value that is not what the operator writes does no harm if there is no choice.
			if all = readings(f, line, 0, false); len(all) > 1 {
				all = nil
			}
		}
		l := newLayout()
		var slots []int
		for _, op := range f.ops {
			slots = append(slots, l.want(op.name))
		}
		if err := f.use(l); err != nil {
			t.Fatal(err)
		}
		v := newValues(l)
		err = f.read([]byte(line), v)
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
			if isNone([]byte(want)) {
				want = ""
			}
			switch {
			case !same && !v.isUnsure(slot):
				t.Fatalf("read(%q) by %q: value %d is sure, %q, but there are readings %q", line, format, i, v.of[slot], all)
			case len(all) == 1 && (v.isUnsure(slot) || string(v.of[slot]) != want):
				t.Fatalf("read(%q) by %q: value %d is %q, want %q", line, format, i, v.of[slot], want)
			case !same:
				unsure++
			}
		}
	}
	if unsure < 1000 {
		t.Errorf("%d values were not certain, want many", unsure)
	}
}

// readings returns all ways to read a line from the i-th literal on.
func readings(f *textFormat, line string, i int, strict bool) [][]string {
	rest, ok := strings.CutPrefix(line, string(f.literals[i]))
	if !ok {
		return nil
	}
	if i == len(f.ops) {
		if rest != "" {
			return nil
		}
		return [][]string{nil}
	}
	var all [][]string
	for n := range len(rest) + 1 {
		if strict && !f.ops[i].fits([]byte(rest[:n])) {
			continue
		}
		for _, tail := range readings(f, rest[n:], i+1, strict) {
			all = append(all, append([]string{rest[:n]}, tail...))
		}
	}
	return all
}
