package accesslog

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

// FuzzRecognise reads any bytes as a log of unknown format. Either the format is
// unknown, or each line has a request, has none or is bad.
func FuzzRecognise(f *testing.F) {
	for _, test := range serverLogs {
		f.Add([]byte(test.log))
		f.Add([]byte(strings.ReplaceAll(test.log, "a", "\x00")))
		f.Add([]byte("[pod] " + strings.ReplaceAll(test.log, " ", "  ")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := Recognise([]Log{{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}}, "auto")
		if err != nil {
			return
		}
		for _, name := range []string{FieldRemote, ":method", ":path", ":authority", "user-agent", "a.b"} {
			if slot := found.Select(name); (slot >= 0) != found.Has(name) {
				t.Errorf("the slot of %s is %d", name, slot)
			}
		}
		if err := found.Prepare(); err != nil {
			t.Fatal(err)
		}
		requests := 0
		r := found.NewReader(math.MaxInt64, func(l *Line) error {
			if requests++; l.At < 0 {
				t.Errorf("time %d", l.At)
			}
			return nil
		})
		var counts Counts
		err = ReadChunks(bytes.NewReader(text), func(c Chunk) error {
			of := r.Read(c)
			counts.Add(&of, "log", counts.Rows)
			c.Free()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if counts.Bad+counts.NoRequest+requests != counts.Read {
			t.Errorf("%d bad lines, %d without and %d with a request, of %d lines", counts.Bad, counts.NoRequest, requests, counts.Read)
		}
	})
}
