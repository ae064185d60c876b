package sentinel_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/sentinel"
)

// servers are Sentinels and the servers that they name, by address.
type servers struct {
	mu    sync.Mutex        // queries go on after a vote has ended
	down  map[string]bool   // guarded by mu
	named map[string]string // guarded by mu; the primary that a Sentinel names
}

func (s *servers) set(address string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[address] = down
}

func (s *servers) name(sentinel, primary string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[sentinel] = primary
}

func (s *servers) get(address string) (down bool, primary string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down[address], s.named[address]
}

func (s *servers) dial(_ context.Context, _, address string) (net.Conn, error) {
	if down, _ := s.get(address); down {
		return nil, errors.New("refused")
	}
	client, server := net.Pipe()
	go s.serve(server, address)
	return client, nil
}

// serve answers commands.
func (s *servers) serve(c net.Conn, address string) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		command, err := readCommand(r)
		down, primary := s.get(address)
		if err != nil || down {
			return
		}
		reply := "+OK\r\n"
		if command[0] == "SENTINEL" {
			host, port, _ := net.SplitHostPort(primary)
			reply = fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) (words []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.Trim(line, "*\r\n"))
	for range 2 * n { // a length and a word
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		words = append(words, strings.TrimSpace(line))
	}
	for i := range n {
		words[i] = words[2*i+1]
	}
	return words[:n], err
}

// newWatch returns a Watch of three Sentinels that name primary:1.
func newWatch(t *testing.T) (*sentinel.Watch, *servers) {
	t.Helper()
	s := &servers{down: map[string]bool{}, named: map[string]string{}}
	to := &redis.Server{Master: "main", DialContext: s.dial}
	for n := range 3 {
		address := fmt.Sprintf("sentinel:%d", n)
		to.Sentinels = append(to.Sentinels, address)
		s.named[address] = "primary:1"
	}
	w := sentinel.New(sentinel.Options{
		Server: to, Timeout: time.Second,
		Address: func() string { return "" },
		Guard:   func(do func()) bool { do(); return true },
	})
	t.Cleanup(w.Close)
	return w, s
}

// A minority of the Sentinels cannot name a primary, but does not end the use of the last one.
func TestMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWatch(t)
		s.set("sentinel:0", true)
		s.set("sentinel:1", true)
		if address, err := w.Primary(t.Context()); err == nil {
			t.Errorf("one of three Sentinels names %s", address)
		}
		s.set("sentinel:0", false)
		for _, down := range []bool{false, true} {
			s.set("sentinel:0", down)
			if address, err := w.Primary(t.Context()); err != nil || address != "primary:1" {
				t.Errorf("with one Sentinel down (both: %t): %q, %v", down, address, err)
			}
		}
		s.name("sentinel:2", "foreign:1")
		if address, err := w.Primary(t.Context()); err == nil {
			t.Errorf("one of three Sentinels moves the primary to %s", address)
		}
	})
}
