package web

import (
	"net/http/httptest"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestWriteTimeoutOfPacedResponses checks that the write timeout applies to each part of a
// response, whether it is written in small pieces or at once.
func TestWriteTimeoutOfPacedResponses(t *testing.T) {
	for _, piece := range []int{100, 3 << 20} {
		w := &servertest.DeadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		p := &PacedWriter{ResponseWriter: w}
		for size := 0; size < 3<<20; size += piece {
			if n, err := p.Write(make([]byte, piece)); n != piece || err != nil {
				t.Fatalf("Write() = %d, %v", n, err)
			}
		}
		if want := (w.Body.Len() + PacedBytes - 1) / PacedBytes; w.Body.Len() < 3<<20 || len(w.Set) != want {
			t.Errorf("%d bytes in pieces of %d have %d deadlines, want %d", w.Body.Len(), piece, len(w.Set), want)
		}
	}
}
