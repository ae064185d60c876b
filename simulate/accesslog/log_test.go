package accesslog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
)

// TestChunksOwnTheirMemory overwrites each chunk before it frees the memory, as the next use of the
// memory would, and checks that the lines remain complete.
func TestChunksOwnTheirMemory(t *testing.T) {
	var log strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&log, "%d%s\n", i, strings.Repeat("x", i%97))
	}
	log.WriteString(strings.Repeat("y", chunkBytes*3) + "\n" + "the last") // longer than a chunk
	var got bytes.Buffer
	err := ReadChunks(strings.NewReader(log.String()), func(c Chunk) error {
		got.Write(c.Bytes)
		clear(c.Bytes[:cap(c.Bytes)])
		c.Free()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != log.String() {
		t.Errorf("chunks differ from the log: %d bytes, want %d", got.Len(), log.Len())
	}
}

// TestTruncatedGzip truncates a gzipped log at each byte: the loss of lines must be an error.
func TestTruncatedGzip(t *testing.T) {
	var log bytes.Buffer
	w := gzip.NewWriter(&log)
	for i := range 100 {
		fmt.Fprintln(w, i)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(n int) error {
		return ReadChunks(bytes.NewReader(log.Bytes()[:n]), func(c Chunk) error {
			c.Free()
			return nil
		})
	}
	for n := 2; n < log.Len(); n++ { // at least gzip's magic number
		if read(n) == nil {
			t.Errorf("the first %d of %d bytes: no error for a truncated log", n, log.Len())
		}
	}
	if err := read(log.Len()); err != nil {
		t.Error(err)
	}
}
