package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// TestLargeBodiesHaveABound checks that clients that send large requests slowly or incompletely
// only exclude large requests of their own address, and that nothing is counted after they end.
func TestLargeBodiesHaveABound(t *testing.T) {
	j := newJSONHandler(answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false), web.MaxBody)
	post := func(from string, body io.Reader) int {
		r := httptest.NewRequest(http.MethodPost, "/json", body)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		j.ServeHTTP(w, r)
		return w.Code
	}
	bodyOf := func(size int) io.Reader {
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
		_, _ = io.CopyN(out, bodyOf(60<<10), 60<<10-1) // may fail: the server may reject the request before its end
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
		if code := post(test.from, bodyOf(test.size)); code != test.want {
			t.Errorf("%d bytes from %s get %d, want %d", test.size, test.from, code, test.want)
		}
	}
	for _, out := range release {
		_ = out.Close()
	}
	slow.Wait()
	if j.bodies.total != 0 || len(j.bodies.byAddress) != 0 {
		t.Errorf("%d bytes are counted at the end, by address %v; want none", j.bodies.total, j.bodies.byAddress)
	}
}

// TestDelayedRepliesHaveFullWriteTimeout checks that the write timeout of a reply starts after its
// delay, which may be longer than the timeout.
func TestDelayedRepliesHaveFullWriteTimeout(t *testing.T) {
	h := answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false)
	w := &servertest.DeadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`))
	newHTTPServer(newJSONHandler(h, web.MaxBody), maxHTTPHead, zap.NewNop()).Handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK || len(w.Set) != 2 || !w.Set[1].After(w.Set[0]) {
		t.Errorf("status %d with the deadlines %v, want a second deadline after the decision", w.Code, w.Set)
	}
}

// TestSmallRequestsOfAnAddressExcludeNoOther has a client whose waiting requests, which are small, have
// more memory than all large requests may have.
func TestSmallRequestsOfAnAddressExcludeNoOther(t *testing.T) {
	var budget bodyBudget
	var waiting []*body
	for range 1000 {
		b := &body{budget: &budget, address: netip.MustParseAddr("192.0.2.1")}
		b.count(2 * maxBodies / 1000)
		waiting = append(waiting, b)
	}
	others := &body{budget: &budget, address: netip.MustParseAddr("192.0.2.2")}
	if !others.tryCount(maxBodiesOfAddress) {
		t.Error("a large request of another client is rejected")
	}
	if waiting[0].tryCount(maxBodiesOfAddress) {
		t.Error("a large request of the same client is admitted")
	}
	for _, b := range append(waiting, others) {
		b.close()
	}
	if budget.total != 0 || len(budget.byAddress) != 0 {
		t.Errorf("%d bytes of %d addresses are counted at the end", budget.total, len(budget.byAddress))
	}
}

// TestMemoryOfPendingRequests sends large requests of several clients while a store does not decide.
// The decoded requests count, small requests are answered, and nothing is counted at the end.
func TestMemoryOfPendingRequests(t *testing.T) {
	const clients, requests, descriptors, most = 8, 40, 1000, 32 << 20
	store := &asyncStore{manual: true}
	j := newJSONHandler(answer.NewHandler(serviceWithStore(t, store, oneRule), zap.NewNop(), nil, false), web.MaxBody)
	tokens := cpu.NewTokens()
	h := tokens.Handler(func(r *http.Request) cpu.Source { return cpu.Source{Kind: cpu.JSON, Address: clientAddress(r)} }, j)
	large := `{"domain":"d","descriptors":[` + strings.Repeat(`{"entries":[{"key":"k","value":"v"}]},`, descriptors-1) + `{"entries":[{"key":"k"}]}]}`
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // frees the objects that the first one removed from pools
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var posting sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	post := func(client int, text string) {
		posting.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(text))
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", client)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	settled := func(sent int) {
		t.Helper()
		await(t, "all requests are rejected or pending", func() bool {
			mu.Lock()
			defer mu.Unlock()
			store.mu.Lock()
			defer store.mu.Unlock()
			return codes[http.StatusServiceUnavailable]+len(store.waiting) == sent
		})
	}
	before := heap()
	for range requests {
		for client := range clients {
			post(client, large)
		}
	}
	settled(clients * requests)
	pending := len(store.waiting)
	if used := heap() - before; used > most || pending == 0 {
		t.Errorf("%d pending requests use %d bytes, want at most %d", pending, used, most)
	}
	for client := range clients {
		post(client, `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`)
	}
	settled(clients*requests + clients)
	store.decide(len(store.waiting))
	posting.Wait()
	if codes[http.StatusOK] != pending+clients || codes[http.StatusServiceUnavailable] != clients*requests-pending {
		t.Errorf("the status codes are %v, want 200 for %d large and %d small requests, and 503 for the others", codes, pending, clients)
	}
	if j.bodies.total != 0 || len(j.bodies.byAddress) != 0 {
		t.Errorf("%d bytes are counted at the end, by address %v; want none", j.bodies.total, j.bodies.byAddress)
	}
}
