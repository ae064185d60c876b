//go:build more

package store

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A hostileServer is a server that answers commands with arbitrary bytes. If answers returns false,
// the connection is closed.
type hostileServer struct {
	addr    string
	answers func(w io.Writer, command []string) bool

	mu          sync.Mutex
	open        map[net.Conn]bool // nil when the test has ended
	connections int               // number of connections so far
}

func newHostileServer(tb testing.TB, answers func(w io.Writer, command []string) bool) *hostileServer {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(tb, err)
	h := &hostileServer{addr: l.Addr().String(), answers: answers, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { h.serve(c) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for c := range h.open {
			_ = c.Close()
		}
		h.open = nil
		h.mu.Unlock()
		all.Wait()
	})
	return h
}

// startServer starts a hostile server and returns its address.
type startServer func(answers func(w io.Writer, command []string) bool) string

func hostileServers(tb testing.TB) startServer {
	tb.Helper()
	return func(answers func(w io.Writer, command []string) bool) string {
		tb.Helper()
		return newHostileServer(tb, answers).addr
	}
}

func (h *hostileServer) serve(c net.Conn) {
	defer c.Close()
	h.mu.Lock()
	ended := h.open == nil
	if !ended {
		h.open[c] = true
		h.connections++
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.open, c)
	}()
	for r := bufio.NewReader(c); !ended; {
		command, err := commandOf(r)
		if err != nil || !h.answers(c, command) {
			return
		}
	}
}

// sendForever sends a text repeatedly until the client closes the connection.
func sendForever(text string) func(w io.Writer) bool {
	b := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	return func(w io.Writer) bool {
		for {
			if _, err := w.Write(b); err != nil {
				return false
			}
		}
	}
}

func replyWith(text string) func(w io.Writer) bool {
	return func(w io.Writer) bool {
		_, err := io.WriteString(w, text)
		return err == nil
	}
}

func inOrder(all ...func(w io.Writer) bool) func(w io.Writer) bool {
	return func(w io.Writer) bool {
		for _, one := range all {
			if !one(w) {
				return false
			}
		}
		return true
	}
}

// sendSlowly sends single bytes with pauses, and never a complete reply.
func sendSlowly(w io.Writer) bool {
	for {
		if _, err := w.Write([]byte(":1"[:1+rand.IntN(2)])); err != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func sendNoise(w io.Writer) bool {
	b := make([]byte, 64<<10)
	for {
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		if _, err := w.Write(b); err != nil {
			return false
		}
	}
}

// hostileReplies are sent instead of replies, with the accepted kinds of the resulting error.
var hostileReplies = []struct {
	name  string
	send  func(w io.Writer) bool
	kinds []redis.Kind
	named string // contained in the error, if it is of the kind Reply
}{
	{"a string of a negative length", replyWith("$-7\r\n"), []redis.Kind{redis.Reply}, "$-7, which is not a length"},
	{"an array of a negative length", replyWith("*-5\r\n"), []redis.Kind{redis.Reply}, "*-5, which is not a length"},
	{"an array of a huge length", replyWith("*99999999999999\r\n"), []redis.Kind{redis.Reply}, "an array of 99999999999999 elements"},
	{"an array of many numbers", inOrder(replyWith("*2147483647\r\n"), sendForever(":1\r\n")), []redis.Kind{redis.Reply}, "an array of 2147483647 elements"},
	{"a string of a huge length", inOrder(replyWith("$99999999999999\r\n"), sendForever("x")), []redis.Kind{redis.Reply}, "a string of 99999999999999 bytes"},
	{"an invalid length", replyWith("*99999999999999999999\r\n"), []redis.Kind{redis.Reply}, "which is not a number"},
	{"a chunk without end", inOrder(replyWith("$?\r\n"), sendForever(";4\r\nabcd\r\n")), []redis.Kind{redis.Reply}, "which is not a number"},
	{"nested arrays without end", sendForever("*1\r\n"), []redis.Kind{redis.Reply}, "arrays nested more than"},
	{"a line without end", sendForever("+"), []redis.Kind{redis.Reply}, "a line of more than 4096 bytes"},
	{"replies without end", sendForever(":1\r\n"), []redis.Kind{redis.Reply}, ""},
	{"a type of RESP3", replyWith("%1\r\n+a\r\n+b\r\n"), []redis.Kind{redis.Reply}, "which is not a reply"},
	{"another protocol", replyWith("HTTP/1.1 400 Bad Request\r\n\r\n"), []redis.Kind{redis.Reply}, "HTTP/1.1 400 Bad Request"},
	{"noise", sendNoise, []redis.Kind{redis.Reply}, ""},
	{"an array of unexpected values", replyWith("*3\r\n+a\r\n*1\r\n:1\r\n$-1\r\n"), []redis.Kind{redis.Reply, redis.Connection}, ""},
	{"half a reply", inOrder(replyWith("*3\r\n:1\r\n"), func(io.Writer) bool { return false }), []redis.Kind{redis.Connection}, ""},
	{"nothing", replyWith(""), []redis.Kind{redis.Timeout}, ""},
	{"the end", func(io.Writer) bool { return false }, []redis.Kind{redis.Connection}, ""},
	{"one byte at a time", sendSlowly, []redis.Kind{redis.Timeout, redis.Reply}, ""},
}

// errorLog collects the errors of a log.
type errorLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *errorLog) log() Log {
	return Log{Unavailable: func(_ string, kind redis.Kind, err error, _ string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintf(&l.text, "%s: %v\n", kind, err)
	}}
}

func (l *errorLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Whatever a server sends, the process continues, and the fallback decides.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	honest := func(w io.Writer, command []string) bool { return replyWith("*3\r\n:1795342320\r\n:1\r\n:0\r\n")(w) }
	for _, reply := range hostileReplies {
		always := func(w io.Writer, _ []string) bool { return reply.send(w) }
		single := func(address string) redis.Server { return redis.Server{Network: "tcp", Address: address} }
		for where, to := range map[string]func(start startServer) redis.Server{
			"handshake": func(start startServer) redis.Server {
				s := single(start(always))
				s.Auth.Password = "x"
				return s
			},
			"script": func(start startServer) redis.Server { return single(start(always)) },
			"batch": func(start startServer) redis.Server {
				return single(start(func(w io.Writer, command []string) bool {
					if text := strings.Join(command, " "); len(command) < 6 || strings.Contains(text, "s1{probe") {
						return honest(w, command)
					}
					return reply.send(w)
				}))
			},
			"Sentinel": func(start startServer) redis.Server {
				s := redis.Server{Master: "main"}
				for range 3 {
					s.Sentinels = append(s.Sentinels, start(always))
				}
				return s
			},
			"cluster": func(start startServer) redis.Server { return redis.Server{Nodes: []string{start(always)}} },
		} {
			t.Run(reply.name+" as "+where, func(t *testing.T) {
				t.Parallel()
				o, lines := &recorder{}, &errorLog{}
				s := runStore(t, Options{
					Server: to(hostileServers(t)), Observer: o, Log: lines.log(), Fallback: Deny, Timeout: 300 * time.Millisecond, DialTimeout: 200 * time.Millisecond,
					Panicked: func(thrown any) { t.Errorf("panicked: %v", thrown) },
				})
				if where == "batch" {
					storetest.Eventually(t, "up", s.Up)
				}
				var c caller
				storetest.Eventually(t, "failed twice, and logged "+reply.named, func() bool {
					if err := c.decide(s, oneHit(1, hugeBucket)); err != nil || !c.b.Denied {
						t.Fatalf("decided %+v, %v, want the fallback", c.b.Decisions, err)
					}
					n := 0
					for _, kind := range reply.kinds {
						n += o.failuresOf(kind)
					}
					s.main.requestRefresh() // query the nodes of the cluster again
					return n >= 2 && strings.Contains(lines.String(), reply.named)
				})
			})
		}
	}
}

// processMemory returns the memory that the process has from the system, in bytes.
func processMemory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}

// clusterOf answers as a node of a cluster with the given number of nonexistent primaries, and of
// ranges of slots.
func clusterOf(primaries, ranges int, moved func() string) func(w io.Writer, command []string) bool {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", ranges)
	for i := range ranges {
		first, last := i*redis.Slots/ranges, (i+1)*redis.Slots/ranges-1
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%040d\r\n", first, max(first, last), 1+i%primaries, i)
	}
	slots := b.String()
	return func(w io.Writer, command []string) bool {
		switch {
		case command[0] == "CLUSTER":
			return replyWith(slots)(w)
		case strings.Contains(strings.Join(command, " "), "s1{probe") || len(command) < 6:
			return replyWith("*3\r\n:1795342320\r\n:1\r\n:0\r\n")(w)
		default:
			return replyWith(moved())(w)
		}
	}
}

// Replies of hostile Sentinels and nodes of a cluster need at most 64 MiB of memory, however many
// servers they name.
func TestHostileMemory(t *testing.T) {
	big := sendForever(":1\r\n$20\r\n" + strings.Repeat("x", 20) + "\r\n")
	for name, to := range map[string]func(start startServer) redis.Server{
		"Sentinels that never end": func(start startServer) redis.Server {
			s := redis.Server{Master: "main"}
			for range 3 {
				s.Sentinels = append(s.Sentinels, start(func(w io.Writer, _ []string) bool { return inOrder(replyWith("*16\r\n"), big)(w) }))
			}
			return s
		},
		"a map of slots that never ends": func(start startServer) redis.Server {
			return redis.Server{Nodes: []string{start(func(w io.Writer, _ []string) bool { return inOrder(replyWith("*131000\r\n"), big)(w) })}}
		},
		"a million ranges": func(start startServer) redis.Server {
			ranges := sendForever("*3\r\n:1\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n")
			return redis.Server{Nodes: []string{start(func(w io.Writer, _ []string) bool { return inOrder(replyWith("*1000000\r\n"), ranges)(w) })}}
		},
		"more than the maximum of primaries": func(start startServer) redis.Server {
			return redis.Server{Nodes: []string{start(clusterOf(10_000, redis.Slots, nil))}}
		},
		"the maximum of primaries": func(start startServer) redis.Server {
			return redis.Server{Nodes: []string{start(clusterOf(redis.MaxPrimaries, 2000, nil))}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures := 5
			if strings.HasPrefix(name, "as many") {
				failures = 4 * redis.MaxPrimaries
			}
			runtime.GC()
			before, most := processMemory(), uint64(0)
			o := &recorder{}
			s := runStore(t, Options{Server: to(hostileServers(t)), Observer: o, Fallback: Deny})
			storetest.Eventually(t, "several failures", func() bool {
				most = max(most, processMemory())
				var c caller
				if err := c.decide(s, oneHit(1, hugeBucket)); err != nil || !c.b.Denied {
					t.Fatalf("decided %+v, %v, want the fallback", c.b.Decisions, err)
				}
				s.main.requestRefresh() // query again
				return o.failuresOf(redis.Reply)+o.failuresOf(redis.Connection) >= failures
			})
			grown := int64(most) - int64(before)
			t.Logf("%d KiB", grown>>10)
			if grown > 64<<20 {
				t.Errorf("memory grew by %d bytes, want at most 64 MiB", grown)
			}
		})
	}
}

// Circular redirections, and redirections to nonexistent servers, do not delay callers beyond their
// deadline, and do not create too many shards.
func TestHostileRedirections(t *testing.T) {
	for name, moved := range map[string]func() string{
		"to others":     func() string { return fmt.Sprintf("-MOVED 1 127.0.0.%d:%d\r\n", 2+rand.IntN(250), 1+rand.IntN(20)) },
		"for a moment":  func() string { return fmt.Sprintf("-ASK 1 127.0.0.%d:%d\r\n", 2+rand.IntN(250), 1+rand.IntN(20)) },
		"to itself":     func() string { return "-MOVED 1 :1\r\n" },
		"to nowhere":    func() string { return "-MOVED 1 a b:c\r\n" },
		"to no port":    func() string { return "-MOVED 1 127.0.0.1:99999\r\n" },
		"not yet":       func() string { return "-TRYAGAIN later\r\n" },
		"without words": func() string { return "-MOVED\r\n" },
	} {
		t.Run(name, func(t *testing.T) {
			var h *hostileServer
			h = newHostileServer(t, func(w io.Writer, command []string) bool {
				if command[0] == "CLUSTER" {
					_, port, _ := net.SplitHostPort(h.addr)
					return replyWith(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", port))(w)
				}
				return clusterOf(1, 1, moved)(w, command)
			})
			runtime.GC()
			before := processMemory()
			s := runStore(t, Options{Server: redis.Server{Nodes: []string{h.addr}}, Fallback: Deny, Timeout: 100 * time.Millisecond})
			storetest.Eventually(t, "up", s.Up)
			var all sync.WaitGroup
			for n := range 8 {
				all.Go(func() {
					var c caller
					for i := range 300 {
						if err := c.decide(s, oneHit(uint64(n*300+i), hugeBucket)); err != nil || !c.b.Denied {
							t.Errorf("decided %+v, %v, want the fallback", c.b.Decisions, err)
						}
						if name == "not yet" && i > 10 { // each request waits until its deadline
							return
						}
					}
				})
			}
			all.Wait()
			s.main.mu.Lock()
			shards := len(s.main.shards)
			s.main.mu.Unlock()
			grown := int64(processMemory()) - int64(before)
			t.Logf("%d shards, %d KiB", shards, grown>>10)
			if shards > 2*redis.MaxPrimaries || grown > 64<<20 {
				t.Errorf("%d shards and %d more bytes, want at most %d and 64 MiB", shards, grown, 2*redis.MaxPrimaries)
			}
		})
	}
}
