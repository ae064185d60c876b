package accesslog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
)

// TestChunksMayBeOverwritten overwrites each chunk before it gives the memory back, as the next
// owner does. The lines of the log are whole all the same.
func TestChunksMayBeOverwritten(t *testing.T) {
	var log strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&log, "%d%s\n", i, strings.Repeat("x", i%97))
	}
	log.WriteString(strings.Repeat("y", chunkBytes*3) + "\n" + "the last") // longer than a chunk
	var got bytes.Buffer
	err := readChunks(strings.NewReader(log.String()), maxLineBytes, func(c Chunk) error {
		got.Write(c.Bytes)
		clear(c.Bytes[:cap(c.Bytes)])
		c.Free()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != log.String() {
		t.Errorf("chunks have %d bytes that are not the %d of the log", got.Len(), log.Len())
	}
}

// TestCutGzipIsNoWholeLog cuts a gzipped log at each of its bytes: lines that are lost must not be
// passed over in silence.
func TestCutGzipIsNoWholeLog(t *testing.T) {
	var log bytes.Buffer
	w := gzip.NewWriter(&log)
	for i := range 100 {
		fmt.Fprintln(w, i)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(n int) error {
		return readChunks(bytes.NewReader(log.Bytes()[:n]), maxLineBytes, func(c Chunk) error {
			c.Free()
			return nil
		})
	}
	for n := 2; n < log.Len(); n++ { // which begins as gzip does
		if read(n) == nil {
			t.Errorf("%d of %d bytes are taken for a whole log", n, log.Len())
		}
	}
	if err := read(log.Len()); err != nil {
		t.Error(err)
	}
}
