package leases

import (
	"testing"
	"testing/synctest"
	"time"
)

// busy makes calls for five seconds without a pause, which end at once.
func (c *clients) busy(b *Connection) {
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		c.call(b, c.call(b, 0))
	}
}

// TestADeadClientLosesItsLeases plays how connections end. Each script ends with a connection that has ended; then the given
// number of leases is held after the grace.
func TestADeadClientLosesItsLeases(t *testing.T) {
	for name, test := range map[string]struct {
		held  uint64 // in the end
		plays func(c *clients, s *Lessor)
	}{
		"abruptly": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace - time.Millisecond)
			c.wantHeld(1)
		}},
		"unresponsive": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Unresponsive, 5)
		}},
		"two connections": {0, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
			time.Sleep(10 * grace)
			c.wantHeld(3)
			b.Close(Abrupt, 5)
		}},
		"one of two connections": {2, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
		}},
		"two after replies, after as many calls": {2, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(AfterReply, 7)
			b.Close(AfterReply, 7)
		}},
		"two after replies, the first after fewer calls": {0, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(AfterReply, 7)
			b.Close(AfterReply, 8)
		}},
		"two after replies, the last after fewer calls": {0, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(AfterReply, 8)
			time.Sleep(10 * grace)
			b.Close(AfterReply, 7)
		}},
		"two after replies, the last after more calls, and later": {2, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(AfterReply, 7)
			time.Sleep(10 * grace)
			b.Close(AfterReply, 8)
		}},
		"abruptly, of a client that replaces connections": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(AfterReply, 5)
			b = s.Connect("a")
			c.call(b, c.call(b, 0))
			time.Sleep(10 * grace)
			b.Close(Abrupt, 5)
		}},
		"another's connection": {1, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("b")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
		}},
		"two, of which the last was after a reply": {0, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
			b.Close(AfterReply, 5)
		}},
		"another connection within the grace": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace - time.Millisecond)
			s.Connect("a")
		}},
		"another connection within the grace, which ended gracefully": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace / 2)
			s.Connect("a").Close(Graceful, 5)
			b = s.Connect("a")
			c.call(b, c.call(b, 0))
			b.Close(Graceful, 5)
		}},
		"another connection within the grace, which ended after a reply": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace / 2)
			b = s.Connect("a")
			c.call(b, c.call(b, 0))
			b.Close(AfterReply, 5)
		}},
		"one long ago, and the other after a reply": {2, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
			time.Sleep(10 * grace)
			b.Close(AfterReply, 5)
		}},
		"after one that has got its lease back": {0, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			lease := c.call(a, 0)
			c.call(b, 0)
			a.Close(Graceful, 5)
			b.Close(Graceful, 5)
			c.call(nil, lease)
			b = s.Connect("a")
			c.call(b, c.call(b, 0))
			b.Close(Abrupt, 5)
		}},
		"the other connection, too": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace / 2)
			b = s.Connect("a")
			c.call(b, 0)
			time.Sleep(10 * grace)
			b.Close(Abrupt, 5)
		}},
		"gracefully": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Graceful, 5)
		}},
		"gracefully, and then the next abruptly": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Graceful, 5)
			time.Sleep(10 * grace)
			b = s.Connect("a")
			c.call(b, c.call(b, 0))
			b.Close(Abrupt, 5)
		}},
		"one abruptly, and the last gracefully": {2, func(c *clients, s *Lessor) {
			a, b := s.Connect("a"), s.Connect("a")
			c.call(a, 0)
			c.call(b, 0)
			a.Close(Abrupt, 5)
			b.Close(Graceful, 5)
		}},
		"a connection without leases, after one gracefully": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Graceful, 5)
			s.Connect("a").Close(Abrupt, 5)
		}},
		"a connection without leases, within the grace": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(grace / 2)
			b = s.Connect("a")
			time.Sleep(grace / 4)
			b.Close(Abrupt, 5)
		}},
		"after a reply": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(AfterReply, 5)
		}},
		"after a burst": {10, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			for range 20 {
				c.call(b, 0)
			}
			b.Close(AfterReply, 5)
		}},
		"after a reply, though it was busy": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			c.busy(b)
			b.Close(AfterReply, 5)
		}},
		"after a reply, of a client that replaces connections": {2, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			c.call(b, 0)
			b.Close(AfterReply, 5)
			b = s.Connect("a")
			c.call(b, 0)
			c.busy(b)
			b.Close(AfterReply, 5)
		}},
		"abruptly, of a client that drops connections": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			lease := c.call(b, 0)
			b.Close(Abrupt, 5)
			b = s.Connect("a")
			c.call(b, lease)
			c.call(b, 0)
			time.Sleep(10 * grace)
			b.Close(Abrupt, 5)
		}},
		"abruptly, of a client that was taken for dead": {1, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			lease := c.call(b, 0)
			b.Close(Abrupt, 5)
			time.Sleep(2 * grace)
			c.wantHeld(0)
			b = s.Connect("a")
			c.call(b, lease)
			c.call(b, 0)
			b.Close(Abrupt, 5)
		}},
		"unresponsive, of a client that drops connections": {0, func(c *clients, s *Lessor) {
			b := s.Connect("a")
			lease := c.call(b, 0)
			b.Close(Abrupt, 5)
			b = s.Connect("a")
			c.call(b, lease)
			c.call(b, 0)
			b.Close(Unresponsive, 5)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClients(t, tenSlots, nil)
				test.plays(c, c.Lessor)
				time.Sleep(grace)
				synctest.Wait()
				c.wantHeld(test.held)
				if test.held > 0 {
					return
				}
				for _, p := range c.clients {
					if p.open > 0 || len(p.closed) > 0 {
						t.Errorf("there still is %+v", p)
					}
				}
			})
		})
	}
}

// TestNoGrace has leases outlive their client.
func TestNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClients(t, tenSlots, func(o *Options) { o.Grace = 0 })
		b := c.Connect("a")
		c.call(b, 0)
		b.Close(Abrupt, 5)
		time.Sleep(time.Minute)
		c.wantHeld(1)
	})
}

// TestALateDecisionKeepsTheClient ends a connection while a store decides a call of it, which is noted after the client is
// back by another connection. The client keeps what it holds when it loses one of two connections later, since it lives.
func TestALateDecisionKeepsTheClient(t *testing.T) {
	for _, resets := range []bool{true, false} { // what the call took, as the transport does
		synctest.Test(t, func(t *testing.T) {
			c := newClients(t, tenSlots, nil)
			first := c.Connect("a")
			first.Close(Abrupt, 1)
			second := c.Connect("a")
			lease := c.call(first, 0)
			if resets {
				first.ResetCall(c.stream)
			} else {
				c.call(second, lease)
			}
			third := c.Connect("a")
			if second.client != third.client || c.clients["a"] != third.client {
				t.Error("two connections of one client are of two")
			}
			c.call(second, 0) // for long
			c.call(third, c.call(third, 0))
			second.Close(Abrupt, 5)
			for range 5 {
				time.Sleep(time.Second)
				c.call(third, c.call(third, 0))
			}
			c.wantHeld(1)
			third.Close(Abrupt, 5)
			time.Sleep(2 * time.Second)
			c.wantHeld(0)
		})
	}
}

// TestStaleLeasesOfALivingClient has a client lose a lease because it seemed dead, and another in a reset or a reload. If it
// returns the first, it closes connections of requests that run. If it returns the second, that says nothing of its
// connections.
func TestStaleLeasesOfALivingClient(t *testing.T) {
	for name, lose := range map[string]func(*clients){
		"reset": func(c *clients) { c.Forget(c.last.ID) },
		"reload": func(c *clients) {
			c.serve(noLimit)
			c.Review(true)
			c.serve(tenSlots)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClients(t, tenSlots, nil)
				b := c.Connect("a")
				first := c.call(b, 0)
				b.Close(Abrupt, 1)
				time.Sleep(grace)
				synctest.Wait()
				b = c.Connect("a")
				second := c.call(b, 0)
				if lose(c); len(c.leases) > 0 {
					t.Fatal("the lease is not lost")
				}
				if c.call(b, second); b.client.dropsConnections {
					t.Error("a lease that was lost otherwise counts")
				}
				if c.call(b, first); !b.client.dropsConnections {
					t.Error("a lease of a connection that was closed does not count")
				}
			})
		})
	}
}

// TestTransitionsOfClients has those that the package page draws: of a client's presence, and of the trust in it.
func TestTransitionsOfClients(t *testing.T) {
	type state struct {
		presence  presence
		suspected bool
		known     bool
		leases    int
	}
	const known = true
	for name, test := range map[string]struct {
		happens func(c *clients, b *Connection) // b is open and has a lease
		want    state
		later   state // after the grace
	}{
		"connect": {func(*clients, *Connection) {}, state{connected, false, known, 1}, state{connected, false, known, 1}},
		"close one of two": {
			func(c *clients, b *Connection) { c.Connect("a"); b.Close(AfterReply, 5) },
			state{connected, false, known, 1},
			state{connected, false, known, 1},
		},
		"close the last without a lease": {
			func(c *clients, b *Connection) { c.call(b, c.last.Number); b.Close(Abrupt, 5) },
			state{disconnected, true, !known, 0},
			state{disconnected, true, !known, 0},
		},
		"close the last, trusted": {
			func(_ *clients, b *Connection) { b.Close(AfterReply, 5) },
			state{disconnected, false, known, 1},
			state{disconnected, false, known, 1},
		},
		"close the last, suspected": {
			func(_ *clients, b *Connection) { b.Close(Abrupt, 5) },
			state{condemned, true, known, 1},
			state{disconnected, true, known, 0},
		},
		"close the last, suspected at the end of the grace": {
			func(c *clients, b *Connection) {
				last := c.Connect("a")
				b.Close(Abrupt, 5)
				time.Sleep(grace)
				last.Close(Abrupt, 0)
			},
			state{condemned, true, known, 1},
			state{disconnected, true, known, 0},
		},
		"close the last, suspected too long ago": {
			func(c *clients, b *Connection) {
				last := c.Connect("a")
				b.Close(Abrupt, 5)
				time.Sleep(grace + 1)
				last.Close(Abrupt, 0)
			},
			state{disconnected, true, known, 1},
			state{disconnected, true, known, 1},
		},
		"disconnected, connect": {
			func(c *clients, b *Connection) { b.Close(AfterReply, 5); c.Connect("a") },
			state{connected, false, known, 1},
			state{connected, false, known, 1},
		},
		"disconnected, last lease": {
			func(c *clients, b *Connection) { b.Close(AfterReply, 5); c.call(nil, c.last.Number) },
			state{disconnected, false, !known, 0},
			state{disconnected, false, !known, 0},
		},
		"condemned, connect": {
			func(c *clients, b *Connection) { b.Close(Abrupt, 5); c.Connect("a") },
			state{connected, true, known, 1},
			state{connected, true, known, 1},
		},
		"condemned, connect, condemned again": {
			func(c *clients, b *Connection) {
				b.Close(Abrupt, 5)
				time.Sleep(grace / 2)
				b = c.Connect("a")
				c.call(b, c.call(b, 0))
				b.Close(Abrupt, 5)
				time.Sleep(grace - 1) // the first grace is over
				synctest.Wait()
			},
			state{condemned, true, known, 1},
			state{disconnected, true, known, 0},
		},
		"condemned, last lease": {
			func(c *clients, b *Connection) { b.Close(Abrupt, 5); c.call(nil, c.last.Number) },
			state{condemned, true, !known, 0},
			state{disconnected, true, !known, 0},
		},
		"trusted, close unresponsive": {
			func(c *clients, b *Connection) { c.Connect("a"); b.Close(Unresponsive, 5) },
			state{connected, true, known, 1},
			state{connected, true, known, 1},
		},
		"trusted, close abruptly": {
			func(c *clients, b *Connection) { c.Connect("a"); b.Close(Abrupt, 5) },
			state{connected, true, known, 1},
			state{connected, true, known, 1},
		},
		"trusted, close gracefully": {
			func(c *clients, b *Connection) { c.Connect("a"); b.Close(Graceful, 5) },
			state{connected, false, known, 1},
			state{connected, false, known, 1},
		},
		"trusted, close an unused connection": {
			func(c *clients, _ *Connection) { c.Connect("a").Close(Unresponsive, 5) },
			state{connected, false, known, 1},
			state{connected, false, known, 1},
		},
		"suspected, call on a later connection": {
			func(c *clients, b *Connection) {
				b.Close(Abrupt, 5)
				later := c.Connect("a")
				c.call(later, c.call(later, 0))
			},
			state{connected, false, known, 1},
			state{connected, false, known, 1},
		},
		"suspected, call on an earlier connection": {
			func(c *clients, b *Connection) {
				last := c.Connect("a")
				c.call(last, c.call(last, 0))
				last.Close(Abrupt, 5)
				c.call(b, c.call(b, 0))
			},
			state{connected, true, known, 1},
			state{connected, true, known, 1},
		},
		"suspected, call on the closed connection": { // a store has decided it since
			func(c *clients, b *Connection) { b.Close(Abrupt, 5); c.call(b, 0) },
			state{condemned, true, known, 2},
			state{disconnected, true, known, 0},
		},
		"suspected, call on the closed connection that had no lease": {
			func(c *clients, b *Connection) {
				last := c.Connect("a")
				c.call(b, c.last.Number)
				b.Close(Abrupt, 5)
				c.call(b, 0)
				last.Close(Abrupt, 0)
			},
			state{condemned, true, known, 1},
			state{disconnected, true, known, 0},
		},
		"suspected, close gracefully": {
			func(c *clients, b *Connection) {
				last := c.Connect("a")
				c.call(last, c.call(last, 0))
				last.Close(Abrupt, 5)
				b.Close(Graceful, 5)
			},
			state{disconnected, false, known, 1},
			state{disconnected, false, known, 1},
		},
		"suspected, close an unused connection": {
			func(c *clients, b *Connection) { last := c.Connect("a"); b.Close(Abrupt, 5); last.Close(Graceful, 0) },
			state{condemned, true, known, 1},
			state{disconnected, true, known, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClients(t, tenSlots, nil)
				b := c.Connect("a")
				c.call(b, 0)
				check := func(when string, want state) {
					t.Helper()
					c.mu.Lock()
					defer c.mu.Unlock()
					p := b.client
					if got := (state{p.presence, p.suspicion.since > 0, c.clients["a"] == p, len(c.leases)}); got != want {
						t.Errorf("%s: got %+v, want %+v", when, got, want)
					}
				}
				test.happens(c, b)
				check("at once", test.want)
				time.Sleep(grace)
				synctest.Wait()
				check("after the grace", test.later)
			})
		})
	}
}
