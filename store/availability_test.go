package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A server that closes connections, at once or after it has answered a probe, is probed at most
// three times a second. The shard tries to reconnect half a second after it failed, plus or minus a
// quarter.
func TestProbesAreSpaced(t *testing.T) {
	for name, answers := range map[string]int{"cannot be reached": -1, "closes at once": 0, "closes after a reply": 1, "answers only probes": 2} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "x"}, Timeout: longTimeout, Fallback: Deny})
			must.OK(t, err)
			dials, last, longest := 0, time.Now(), time.Duration(0)
			l := newShard(s.main, "x", func(context.Context) (*redis.Conn, error) {
				longest, last = max(longest, time.Since(last)), time.Now()
				if dials++; answers < 0 {
					return nil, errors.New("cannot be reached")
				}
				mine, theirs := net.Pipe()
				c := redis.New(mine, "", time.Second)
				go func() {
					defer theirs.Close()
					for r, left := bufio.NewReader(theirs), answers; ; left-- {
						if _, err := commandOf(r); err != nil || left == 0 {
							return
						}
						_, _ = io.WriteString(theirs, "*3\r\n:1795342320\r\n:1\r\n:0\r\n")
					}
				}()
				return c, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l.close(t.Context(), l.runProber(ctx))
			synctest.Wait()
			t.Logf("%s: %d connections in a minute", name, dials)
			if most := int(time.Minute/(maxProbeDelay*3/4)) + 10; dials > most || dials < 30 {
				t.Errorf("%s: %d connections in a minute, want 30 to %d", name, dials, most)
			}
			if longest > 625*time.Millisecond {
				t.Errorf("%s: an attempt to connect followed %v after the previous one", name, longest)
			}
		})
	}
}

// The server pauses for less than the store timeout, and then for longer. The dial timeout is much
// shorter. The first pause is not an outage, neither for the regular probe nor for leaderships.
func TestProbesWaitAsLongAsRequests(t *testing.T) {
	for name, dialTimeout := range map[string]time.Duration{"a short dial timeout": 10 * time.Millisecond, "a long dial timeout": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			o := &recorder{}
			const timeout = 10 * time.Second
			s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "x"}, Timeout: timeout, DialTimeout: dialTimeout, Fallback: Deny, Observer: o})
			must.OK(t, err)
			pauses := make(chan time.Duration, 3) // pauses before replies to probes and to the leadership request; later requests get no reply
			pauses <- 0
			pauses <- timeout / 2
			pauses <- timeout / 2
			close(pauses)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := s.main.shardOf(0)
			l.dial = func(context.Context) (*redis.Conn, error) {
				mine, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					for r := bufio.NewReader(theirs); ; {
						command, err := commandOf(r)
						if err != nil {
							return
						}
						if l.isUp() {
							pause, more := <-pauses
							if !more {
								pause = time.Hour
							}
							select {
							case <-time.After(pause):
							case <-ctx.Done():
							}
						}
						reply := "*3\r\n:1795342320\r\n:1\r\n:0\r\n"
						if slices.Contains(command, "s1{role:shop}") {
							reply = "$1\r\na\r\n"
						}
						_, _ = io.WriteString(theirs, reply)
					}
				}()
				return redis.New(mine, "", dialTimeout), nil
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Run(ctx)
			}()
			time.Sleep(2*probeInterval + 100*time.Millisecond) // the second probe is waiting for its reply
			if got := acquireOne(t, s, "a", "shop", time.Second); got != "a" {
				t.Errorf("%s: the leader is %q, want the one in the server's delayed reply", name, got)
			}
			time.Sleep(2 * probeInterval)
			if n := o.failuresOf(redis.Timeout); n > 0 || !s.Up() {
				t.Errorf("%s: %d failures in two pauses of half the store timeout, up is %v", name, n, s.Up())
			}
			time.Sleep(probeInterval + max(timeout, dialTimeout))
			if synctest.Wait(); o.failuresOf(redis.Timeout) == 0 {
				t.Errorf("%s: a server that does not answer probes is still available", name)
			}
			cancel()
			<-done
		})
	}
}

// A server that takes most of the store timeout for each command, of which some follow each other:
// the script after NOSCRIPT, probes and measurements. It is not an outage.
func TestSlowServerStaysAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &recorder{}
		const timeout = time.Second
		s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "x"}, Timeout: timeout, Fallback: Deny, Observer: o})
		must.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var silent atomic.Bool
		var dials atomic.Int64
		s.main.shardOf(0).dial = func(context.Context) (*redis.Conn, error) {
			dials.Add(1)
			mine, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				reply := "-NOSCRIPT\r\n" // the first
				for r := bufio.NewReader(theirs); ; {
					if _, err := commandOf(r); err != nil {
						return
					}
					delay := timeout * 9 / 10
					if silent.Load() {
						delay = time.Hour
					}
					select {
					case <-time.After(delay):
					case <-ctx.Done():
					}
					_, _ = io.WriteString(theirs, reply)
					reply = "*3\r\n:1795342320\r\n:1\r\n:0\r\n"
				}
			}()
			return redis.New(mine, "", timeout), nil
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		time.Sleep(time.Minute)
		if n := o.failuresOf(redis.Timeout); n > 0 || !s.Up() || dials.Load() != 1 {
			t.Errorf("%d failures and %d connections in a minute, up is %v", n, dials.Load(), s.Up())
		}
		silent.Store(true)
		time.Sleep(4 * timeout) // the reply in progress, a probe, and the timeout
		if synctest.Wait(); o.failuresOf(redis.Timeout) == 0 {
			t.Error("a silent server is still available")
		}
		cancel()
		<-done
	})
}

// A server that takes most of the timeout for each of the commands that one write contains.
func TestRepliesOfOneWriteMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, commands = time.Second, 5
		mine, theirs := net.Pipe()
		c := redis.New(mine, "", timeout)
		defer c.Close()
		answer := func(w io.Writer, commands int) {
			for range commands {
				time.Sleep(timeout * 9 / 10)
				_, _ = io.WriteString(w, "+OK\r\n")
			}
		}
		exchange := func() error {
			x := c.Begin()
			replies := make([]resp.Reply, commands)
			for i := range replies {
				replies[i].Reset(redis.ShortReply)
				x.Append(&replies[i], "PING")
			}
			return c.Exchange(x)
		}
		go func() {
			r := bufio.NewReader(theirs)
			for n := range 2 * commands {
				_, _ = commandOf(r)
				switch n + 1 {
				case commands:
					go answer(theirs, commands)
				case 2 * commands:
					go answer(theirs, commands-1)
				}
			}
		}()
		began := time.Now()
		must.OK(t, c.Within(t.Context(), timeout, exchange))
		if last := began.Add(commands * timeout * 9 / 10); !c.LastReplied().Equal(last) {
			t.Errorf("the last reply came at %v, want %v", c.LastReplied(), last)
		}
		// The last command has no reply.
		if err := c.Within(t.Context(), timeout, exchange); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a reply the error is %v", err)
		}
		if took, want := time.Since(c.LastReplied()), timeout; took != want {
			t.Errorf("the connection was closed %v after the last reply, want %v", took, want)
		}
	})
}
