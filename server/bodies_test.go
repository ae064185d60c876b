package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestLargeBodiesHaveABound holds that clients that send large requests slowly, or a part of them, keep out the large
// requests of their own address alone, and that nothing is counted after their end.
func TestLargeBodiesHaveABound(t *testing.T) {
	j := newJSONHandler(answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false), maxHTTPBody)
	post := func(from string, body io.Reader) int {
		r := httptest.NewRequest(http.MethodPost, "/json", body)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		j.ServeHTTP(w, r)
		return w.Code
	}
	ask := func(size int) io.Reader {
		const begin, end = `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"`, `"}]}]}`
		return strings.NewReader(begin + strings.Repeat("v", size-len(begin)-len(end)) + end)
	}
	var slow sync.WaitGroup
	var release []*io.PipeWriter
	for range 70 {
		in, out := io.Pipe()
		release = append(release, out)
		slow.Go(func() {
			post("192.0.2.1:1", in)
			_ = in.Close()
		})
		_, _ = io.CopyN(out, ask(60<<10), 60<<10-1) // it may be rejected on the way
	}
	for _, test := range []struct {
		from string
		size int
		want int
	}{
		{"192.0.2.1:2", 60 << 10, http.StatusServiceUnavailable},
		{"192.0.2.1:2", 4 << 10, http.StatusOK},
		{"192.0.2.2:1", 60 << 10, http.StatusOK},
	} {
		if code := post(test.from, ask(test.size)); code != test.want {
			t.Errorf("%d bytes from %s get %d, want %d", test.size, test.from, code, test.want)
		}
	}
	for _, out := range release {
		_ = out.Close()
	}
	slow.Wait()
	if j.bodies.all != 0 || len(j.bodies.byAddress) != 0 {
		t.Errorf("%d bytes, of %v, are counted in the end", j.bodies.all, j.bodies.byAddress)
	}
}

// TestLongResponsesHaveTimeByTheirLength holds that each part of a table has the time of a response, whether it is
// written in small pieces or at once.
func TestLongResponsesHaveTimeByTheirLength(t *testing.T) {
	_, _, all, _ := tablesServer(t, tableRules)
	e, err := all.Table("users")
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]tables.Change, 20_000)
	for i := range changes {
		changes[i] = tables.Change{Values: []string{fmt.Sprintf("%0100d", i)}, Row: tables.Row{RequestsPerUnit: 1}}
	}
	if err := e.Journal.Apply([]string{"user"}, changes); err != nil {
		t.Fatal(err)
	}
	h := &tablesHandler{Handler: answer.NewHandler(servertest.Service(t, answer.Settings{Tables: all}, tableRules), zap.NewNop(), nil, false)}
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	if err := h.list(w, "users"); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		size := w.Body.Len()
		if want := (size + pacedPart - 1) / pacedPart; size < 2<<20 || len(w.set) != want {
			t.Errorf("%d bytes have %d deadlines, want %d", size, len(w.set), want)
		}
	}
	check()
	w = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	if n, err := (&paced{ResponseWriter: w}).Write(make([]byte, 3<<20)); n != 3<<20 || err != nil {
		t.Errorf("Write() = %d, %v", n, err)
	}
	check()
}

// TestHeldRepliesHaveTimeToBeRead holds that the time in which a client must read a reply begins with the reply, which
// may have been held for longer.
func TestHeldRepliesHaveTimeToBeRead(t *testing.T) {
	h := answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`))
	newHTTPServer(newJSONHandler(h, maxHTTPBody), maxHTTPHead, zap.NewNop()).Handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK || len(w.set) != 2 || !w.set[1].After(w.set[0]) {
		t.Errorf("%d with the deadlines %v, want a second one after the decision", w.Code, w.set)
	}
}
