package cpu

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// settle waits until all goroutines wait. Tasks yield by sleeping.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func source(kind Kind, address string) Source { return Source{kind, netip.MustParseAddr(address)} }

// TestTasksUseHalfOfTheTokens starts more tasks and calls than there are tokens.
func TestTasksUseHalfOfTheTokens(t *testing.T) {
	for n, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		synctest.Test(t, func(t *testing.T) {
			tokens := newTokens(n)
			end := make(chan struct{})
			for range 2 * n {
				go func() {
					task := tokens.NewTask(source(JSON, "192.0.2.1"))
					task.Resume()
					<-end
					task.Pause()
				}()
			}
			settle()
			if calls, tasks := tokens.InUse(); calls != 0 || tasks != most {
				t.Errorf("of %d tokens, %d calls and %d tasks use some, want 0 and %d", n, calls, tasks, most)
			}
			for range 2 * n {
				go func() {
					tokens.AcquireCall()
					<-end
					tokens.ReleaseCall()
				}()
			}
			settle()
			if calls, tasks := tokens.InUse(); calls != n-most || tasks != most {
				t.Errorf("of %d tokens, %d calls and %d tasks use some, want %d and %d", n, calls, tasks, n-most, most)
			}
			for range 2 * n {
				end <- struct{}{} // one ends, and another one begins
				settle()
				if calls, tasks := tokens.InUse(); calls+tasks > n || tasks > most {
					t.Errorf("of %d tokens, %d calls and %d tasks use some, want at most %d tasks", n, calls, tasks, most)
				}
			}
			close(end)
			settle()
			if calls, tasks := tokens.InUse(); calls+tasks != 0 || tokens.waiting+tokens.sources.Len()+len(tokens.bySource) != 0 {
				t.Errorf("at the end, %d calls and %d tasks use a token", calls, tasks)
			}
		})
	}
}

// TestNobodyWaitsForLongTasks starts scrapes and pages for operators. They wait for each other, but no
// call and no other task does.
func TestNobodyWaitsForLongTasks(t *testing.T) {
	for n, most := range map[int]int{1: 1, 2: 1, 4: 1, 8: 2} {
		synctest.Test(t, func(t *testing.T) {
			tokens := newTokens(n)
			end := make(chan struct{})
			for i := range 2 * n {
				go func() {
					task := tokens.NewTask(source([]Kind{Scrape, Operator}[i%2], "192.0.2.1"))
					task.Resume()
					<-end
					task.Pause()
				}()
			}
			settle()
			if _, tasks := tokens.InUse(); tasks != most || tokens.Waiting() != 2*n-most {
				t.Errorf("with %d CPUs, %d long tasks run and %d wait, want %d and %d", n, tasks, tokens.Waiting(), most, 2*n-most)
			}
			for _, kind := range []Kind{Handshake, JSON, OtherCall} {
				task := tokens.NewTask(source(kind, "192.0.2.1"))
				task.Resume() // a wait would be a deadlock
				task.Pause()
			}
			for range n {
				tokens.AcquireCall()
			}
			for range n {
				tokens.ReleaseCall()
			}
			close(end)
			time.Sleep(time.Minute) // the tokens rest
			if calls, tasks := tokens.InUse(); calls+tasks+tokens.Waiting() != 0 {
				t.Errorf("at the end, %d calls and %d tasks use a token", calls, tasks)
			}
		})
	}
}

// TestLongTasksUseHalfOfTheTime runs scrapes of 10 ms without a pause.
func TestLongTasksUseHalfOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(2)
		start := time.Now()
		worked := [2]time.Duration{}
		var group sync.WaitGroup
		for i := range worked {
			group.Go(func() {
				for time.Since(start) < time.Minute {
					task := tokens.NewTask(source(Scrape, "192.0.2.1"))
					task.Resume()
					time.Sleep(10 * time.Millisecond)
					worked[i] += 10 * time.Millisecond
					task.Pause()
				}
			})
		}
		group.Wait()
		const half = 30 * time.Second
		if total := worked[0] + worked[1]; total < half*99/100 || total > half*101/100 {
			t.Errorf("scrapes worked for %v of a minute, want half of it", total)
		}
	})
}

// TestRestIsBounded suspends the process for an hour while a scrape has the token.
func TestRestIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(2)
		task := tokens.NewTask(source(Scrape, "192.0.2.1"))
		task.Resume()
		time.Sleep(time.Hour)
		task.Pause()
		paused := time.Now()
		task.Resume()
		if waited := time.Since(paused); waited != maxRest {
			t.Errorf("the next use of the token waits %v, want %v", waited, maxRest)
		}
		task.End()
		time.Sleep(maxRest)
	})
}

// TestOrderOfTokens checks that calls have precedence, that tasks do not starve, and that sources
// take turns however many tasks each has.
func TestOrderOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(1)
		tokens.AcquireCall()
		var order []string
		wait := func(n int, name string, acquire, release func()) {
			for range n {
				go func() {
					acquire()
					order = append(order, name)
					release()
				}()
				synctest.Wait()
			}
		}
		task := func(n int, kind Kind, address string) {
			for range n {
				task := tokens.NewTask(source(kind, address))
				wait(1, strings.Repeat("h", 1-min(1, int(kind)))+address, func() { task.Resume() }, task.Pause)
			}
		}
		task(5, JSON, "192.0.2.1")
		task(1, JSON, "192.0.2.2")
		task(1, Handshake, "192.0.2.1")
		wait(20, "call", tokens.AcquireCall, tokens.ReleaseCall)
		tokens.ReleaseCall()
		settle()
		want := slices.Concat(slices.Repeat([]string{"call"}, 8), []string{"192.0.2.1"}, slices.Repeat([]string{"call"}, 8), []string{"192.0.2.2"},
			slices.Repeat([]string{"call"}, 4), []string{"h192.0.2.1"}, slices.Repeat([]string{"192.0.2.1"}, 4))
		if !slices.Equal(order, want) {
			t.Errorf("tokens are granted in the order %q, want %q", order, want)
		}
	})
}

// TestBegunTasksStarveNoNewOne has tasks of an address that pause and resume all the time, as those
// of a client that sends single bytes. A new task of the same address gets a token nevertheless.
func TestBegunTasksStarveNoNewOne(t *testing.T) {
	for _, kind := range []Kind{Handshake, JSON} {
		synctest.Test(t, func(t *testing.T) {
			tokens := newTokens(2)
			var begun sync.WaitGroup
			for range 3 {
				begun.Go(func() {
					task := tokens.NewTask(source(kind, "192.0.2.1"))
					for range 1000 {
						task.Resume()
						time.Sleep(work)
						task.Pause()
					}
				})
			}
			time.Sleep(10 * work)
			start := time.Now()
			task := tokens.NewTask(source(kind, "192.0.2.1"))
			task.Resume()
			if took := time.Since(start); took > 20*work {
				t.Errorf("a new task of kind %d waits %v, want at most %v", kind, took, 20*work)
			}
			task.Pause()
			begun.Wait()
		})
	}
}

// TestHandlerPausesTasks checks when a request has a token, and that a panic releases it.
func TestHandlerPausesTasks(t *testing.T) {
	tokens := newTokens(2)
	check := func(when string, want int) {
		t.Helper()
		if calls, tasks := tokens.InUse(); calls != 0 || tasks != want {
			t.Errorf("%s: %d calls and %d tasks have a token, want %d tasks", when, calls, tasks, want)
		}
	}
	h := tokens.Handler(func(*http.Request) Source { return source(JSON, "192.0.2.1") }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check("at the beginning", 1)
		_, _ = io.ReadAll(r.Body)
		check("after the body was read", 1)
		FromContext(r.Context()).Wait(func() { check("while it waits", 0) })
		if out, ok := w.(*pausingWriter); !ok || out.buffer != nil {
			t.Error("a request that may wait for long has a buffer for its response")
		}
		check("after it waited", 1)
		for range 10 {
			_, _ = w.Write(make([]byte, writeBytes-1))
		}
		check("after writes", 1)
		if r.Method == http.MethodPut {
			panic(http.ErrAbortHandler)
		}
	}))
	body := func() io.Reader {
		return readFunc(func() { check("while the body is read", 0) })
	}
	w := &checkedWriter{httptest.NewRecorder(), func() { check("while the response is written", 0) }}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body()))
	check("at the end", 0)
	if n := w.Body.Len(); n != 10*(writeBytes-1) {
		t.Errorf("the response has %d bytes, want %d", n, 10*(writeBytes-1))
	}
	defer func() {
		if recover() == nil {
			t.Error("the panic is lost")
		}
		check("after a panic", 0)
	}()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/", body()))
}

// readFunc is an empty body.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

type checkedWriter struct {
	*httptest.ResponseRecorder

	check func()
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	w.check()
	return w.ResponseRecorder.Write(p)
}
