package resp

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// largeLimits suffice for all valid replies of these tests.
var largeLimits = Limits{Values: 64, Bytes: 1 << 10}

// decode decodes the replies in text, in pieces of the given length.
func decode(text string, piece int, most Limits) (all []*Reply, unread int, err error) {
	var d Decoder
	r := &Reply{}
	r.Reset(most)
	for p := []byte(text); len(p) > 0; {
		n, done, err := d.Decode(p[:min(piece, len(p))], r)
		if err != nil {
			return all, len(p) - n, err
		}
		if p = p[n:]; done {
			all = append(all, r)
			r = &Reply{}
			r.Reset(most)
			unread = len(p)
		}
	}
	return all, unread, nil
}

// format formats a value: an array as its length and its elements in brackets.
func format(r *Reply, i int) string {
	switch r.Kind(i) {
	case Integer:
		return strconv.FormatInt(r.Int(i), 10)
	case Nil:
		return "nil"
	case Array:
		elements := []string{}
		for at := i + 1; at < r.After(i); at = r.After(at) {
			elements = append(elements, format(r, at))
		}
		return fmt.Sprintf("%d%v", r.Int(i), elements)
	default:
		return fmt.Sprintf("%c%q", r.Kind(i), r.Text(i))
	}
}

func TestDecode(t *testing.T) {
	for text, want := range map[string][]string{
		":0\r\n:-12\r\n:+7\r\n":                                  {"0", "-12", "7"},
		":9223372036854775807\r\n:-9223372036854775808\r\n":      {"9223372036854775807", "-9223372036854775808"},
		"+OK\r\n+\r\n":                                           {`+"OK"`, `+""`},
		"-ERR it failed\r\n":                                     {`-"ERR it failed"`},
		"$0\r\n\r\n$3\r\na\r\n\r\n$-1\r\n":                       {`$""`, `$"a\r\n"`, "nil"},
		"*0\r\n*-1\r\n*2\r\n:1\r\n$1\r\nx\r\n+b\r\n":             {"0[]", "nil", `2[1 $"x"]`, `+"b"`},
		"*3\r\n*2\r\n:1\r\n*0\r\n$-1\r\n*1\r\n*1\r\n-E\r\n":      {`3[2[1 0[]] nil 1[1[-"E"]]]`},
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:8\r\n": {"1[1[1[1[1[1[1[1[8]]]]]]]]"},
		"-" + strings.Repeat("e", 2000) + "\r\n":                 {`-"` + strings.Repeat("e", 2000) + `"`},
	} {
		for _, piece := range []int{1, 2, 3, len(text)} {
			all, unread, err := decode(text, piece, largeLimits)
			var got []string
			for _, r := range all {
				got = append(got, format(r, 0))
			}
			if err != nil || unread != 0 || !slices.Equal(got, want) {
				t.Errorf("%q in pieces of %d: %q, %d bytes left, %v; want %q", text, piece, got, unread, err, want)
			}
		}
	}
}

// Bytes that are not a reply, or too large a reply, are rejected as soon as possible. The error
// quotes them, and no memory is allocated for announced lengths.
func TestMalformed(t *testing.T) {
	for text, want := range map[string]string{
		"$-7\r\n":                   "$-7, which is not a length",
		"*-5\r\n":                   "*-5, which is not a length",
		"*99999999999999\r\n":       "an array of 99999999999999 elements in a reply that may have 64",
		"*99999999999999999999\r\n": "which is not a number",
		"$99999999999999\r\n":       "a string of 99999999999999 bytes in a reply that may have 1024",
		"$9223372036854775807\r\n":  "a string of 9223372036854775807 bytes",
		"*2\r\n$1000\r\n" + strings.Repeat("x", 1000) + "\r\n$25\r\n": "a string of 25 bytes",
		strings.Repeat("*1\r\n", 9):                                   "arrays nested more than 8 deep",
		"*40\r\n" + strings.Repeat("*2\r\n:1\r\n:2\r\n", 40):          "more than 64 values",
		"*2\r\n+" + strings.Repeat("x", 1025) + "\r\n":                "a reply of more than 1024 bytes",
		"*2\r\n-" + strings.Repeat("x", 1025) + "\r\n":                "a reply of more than 1024 bytes",
		"+" + strings.Repeat("x", 5000):                               "a line of more than 4096 bytes",
		strings.Repeat("x", 5000):                                     "a line of more than 4096 bytes",
		"HTTP/1.1 400 Bad Request\r\n":                                `"HTTP/1.1 400 Bad Request\r\n", which is not a reply`,
		"%1\r\n+a\r\n+b\r\n":                                          "which is not a reply",
		"\r\n":                                                        "which is not a reply",
		":1\n":                                                        "which is not a reply",
		":\r\n":                                                       "which is not a number",
		":-\r\n":                                                      "which is not a number",
		":--1\r\n":                                                    "which is not a number",
		":1 \r\n":                                                     "which is not a number",
		":1_0\r\n":                                                    "which is not a number",
		":0x1\r\n":                                                    "which is not a number",
		":9223372036854775808\r\n":                                    "which is not a number",
		":-9223372036854775809\r\n":                                   "which is not a number",
		"$x\r\n":                                                      "which is not a number",
		"$1\r\nab\r\n":                                                "want a line end",
		"$1\r\na\n":                                                   "want a line end",
		"$0\r\n:1\r\n":                                                "want a line end",
	} {
		for _, piece := range []int{1, 7, len(text)} {
			_, _, err := decode(text, piece, largeLimits)
			var malformed ProtocolError
			if !errors.As(err, &malformed) || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
				t.Errorf("%q in pieces of %d: %v, want %q", text, piece, err, want)
			}
		}
	}
}

// A Reply does not keep the memory of a single large reply, and reuses its memory otherwise.
func TestReplyMemory(t *testing.T) {
	var d Decoder
	var r Reply
	most := Limits{Values: 1 << 17, Bytes: 1 << 20}
	r.Reset(most)
	text := []byte("*2\r\n$1000000\r\n" + strings.Repeat("x", 1000000) + "\r\n*100000\r\n" + strings.Repeat(":1\r\n", 100000))
	if _, done, err := d.Decode(text, &r); !done || err != nil {
		t.Fatal(done, err)
	}
	r.Reset(most)
	if cap(r.text) > keptBytes || cap(r.values) > keptValues {
		t.Errorf("the reply keeps memory for %d bytes and %d values", cap(r.text), cap(r.values))
	}
	small := []byte("*5\r\n:1795342320\r\n:12\r\n$8\r\nabcdefgh\r\n*1\r\n:1\r\n$-1\r\n")
	if n := must.AllocsPerRun(100, func() {
		r.Reset(most)
		if _, done, err := d.Decode(small[:20], &r); done || err != nil {
			t.Fatal(done, err)
		}
		if _, done, err := d.Decode(small[20:], &r); !done || err != nil || r.Text(3) != "abcdefgh" {
			t.Fatal(done, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a reply, want none", n)
	}
}

// A command is an array of strings, so a decoder can decode it.
func TestCommand(t *testing.T) {
	args := []string{"SET", "", "a\r\nb\x00", strings.Repeat("x", 12), "5", "6", "7", "8", "9", "10"}
	b := AppendCommand(nil, len(args))
	for _, arg := range args {
		b = AppendArgument(b, arg)
	}
	all, unread, err := decode(string(b), 5, largeLimits)
	if err != nil || unread != 0 || len(all) != 1 || all[0].Int(0) != int64(len(args)) {
		t.Fatalf("%q: %d replies, %d bytes left, %v", b, len(all), unread, err)
	}
	for i, arg := range args {
		if all[0].Kind(i+1) != Bulk || all[0].Text(i+1) != arg {
			t.Errorf("argument %d is %q, want %q", i, all[0].Text(i+1), arg)
		}
	}
}

// FuzzDecode decodes arbitrary bytes at once and in pieces: the results agree and are within the
// limits, and decoded arrays are complete.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		":1\r\n+OK\r\n-ERR x\r\n$2\r\nab\r\n*2\r\n:1\r\n$-1\r\n", "*3\r\n*2\r\n:1\r\n*0\r\n$-1\r\n*1\r\n*1\r\n-E\r\n",
		"$-7\r\n", "*-5\r\n", "*99999999999999\r\n", "$99999999999999\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "HTTP/1.1 400\r\n",
	} {
		f.Add([]byte(seed), byte(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece byte) {
		whole, unread, err := decode(string(text), len(text)+1, largeLimits)
		parts, rest2, err2 := decode(string(text), int(piece)+1, largeLimits)
		if len(whole) != len(parts) || (err == nil) != (err2 == nil) || err == nil && unread != rest2 {
			t.Fatalf("%d replies and %v in one piece, %d and %v in pieces of %d", len(whole), err, len(parts), err2, int(piece)+1)
		}
		for i, r := range whole {
			if got, want := format(parts[i], 0), format(r, 0); got != want {
				t.Fatalf("reply %d is %s in pieces, %s in one piece", i, got, want)
			}
			if r.After(0) != r.Len() {
				t.Fatalf("reply %d ends at value %d of %d", i, r.After(0), r.Len())
			}
			if r.Len() > largeLimits.Values || len(r.text) > largeLimits.Bytes+maxLine {
				t.Fatalf("reply %d has %d values and %d bytes", i, r.Len(), len(r.text))
			}
		}
	})
}
