package accesslog

import (
	"io"
	"strings"
	"testing"
)

// endless is a reader of a line without an end. It counts the read bytes.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	e.read += len(p)
	if e.read > 8*maxLineBytes {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestSampleStopsAtTooLongLine checks that recognition does not read a line longer than the maximum.
func TestSampleStopsAtTooLongLine(t *testing.T) {
	for begin, want := range map[string]string{"": "log:1: line is longer than 1 MiB", serverLogs[0].log: ""} {
		line := &endless{}
		in := Log{Name: "log", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(begin), line)), nil
		}}
		_, err := Recognise([]Log{in}, "auto")
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("after %q: %v, want %q", begin, err, want)
		}
		if line.read > 3*maxLineBytes {
			t.Errorf("after %q: %d bytes were read", begin, line.read)
		}
	}
}
