package own

import (
	"testing"

	"golang.org/x/net/http2"
)

// TestCallsOfAStoreHaveABound has connections send more calls than may be with a store, which decides none of them.
// They stop reading near the bound. A connection with few calls goes on until all calls of stores take more. Once the
// store decides, all calls are answered.
func TestCallsOfAStoreHaveABound(t *testing.T) {
	t.Parallel()
	const conns, calls = 32, 1000
	s, g := storing(t, oneRule)
	r := serve(t, s, options{Transport: transportOwn})
	request := requestOf(t, "k")
	var clients []*rawClient
	for range conns {
		c := r.rawClient(t)
		c.goes(c.fr.WriteWindowUpdate(0, 1<<30))
		clients = append(clients, c)
		go func() {
			for range calls {
				c.call(request, 0)
			}
		}()
	}
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the own transport")
	}
	var undecided []func()
	drain := func() {
		for len(g.waiting) > 0 {
			undecided = append(undecided, <-g.waiting)
		}
	}
	await(t, "all connections wait, or have sent all calls", func() bool {
		drain()
		n := w.stored.busy.length.Load()
		for _, c := range w.all() {
			if c.deciding.Load() == calls {
				n++
			}
		}
		return n == conns
	})
	drain()
	each := w.stored.bytes.Load() / int64(len(undecided))
	t.Logf("%d calls take %d bytes", len(undecided), w.stored.bytes.Load())
	if most := mostOfBusy + conns*framesOfATurn/2*each; w.stored.bytes.Load() > most || each < 1<<10 {
		t.Errorf("%d calls take %d bytes, %d each, want at most %d", len(undecided), w.stored.bytes.Load(), each, most)
	}

	neighbour := r.rawClient(t)
	neighbour.call(request, 0)
	(<-g.waiting)()
	neighbour.ends(1)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, decide := range undecided {
			decide()
		}
		for n := len(undecided); n < conns*calls; n++ {
			(<-g.waiting)()
		}
	}()
	for _, c := range clients {
		c.ends(calls)
	}
	<-done
	await(t, "no call is counted", func() bool { return w.stored.bytes.Load() == 0 && w.parked.bytes.Load() == 0 })
}

// framesOfATurn is how many frames a turn takes.
const framesOfATurn = 256

// TestAllWaitForAStore has the calls of stores take all that they may: a connection that has none reads nothing until
// one of them is returned.
func TestAllWaitForAStore(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s, options{Transport: transportOwn})
	holder := r.rawClient(t)
	holder.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	await(t, "the call is counted", func() bool { return c.counted.Load() > 0 })
	w.stored.bytes.Add(mostStored - c.counted.Load()) // as if the calls of others took the rest

	var waiting []*rawClient
	for i := range 3 {
		waiting = append(waiting, r.rawClient(t))
		waiting[i].call(requestOf(t, "k"), 0)
	}
	await(t, "the others wait", func() bool { return w.stored.other.length.Load() == 3 })
	if len(g.waiting) > 0 {
		t.Error("the store gets a call above the bound")
	}
	decide()
	holder.ends(1)
	for range waiting { // one after another, since the turn of each ends
		(<-g.waiting)()
	}
	for _, c := range waiting {
		c.ends(1)
	}
}

// TestAConnectionWaitsForItsOwnCalls has a client reset its calls at once: the store has no more of them than the
// connection may have streams, and a turn's.
func TestAConnectionWaitsForItsOwnCalls(t *testing.T) {
	t.Parallel()
	const calls = 3000
	s, g := storing(t, oneRule)
	r := serve(t, s, options{Transport: transportOwn})
	client := r.rawClient(t)
	go func() {
		for range calls {
			client.goes(client.fr.WriteRSTStream(client.call(requestOf(t, "k"), 0), http2.ErrCodeCancel))
		}
	}()
	_, c := r.only(t)
	undecided := g.undecided(1024)
	for n := len(undecided); n < calls; n++ {
		if got := c.deciding.Load(); got > 1024+framesOfATurn/2 {
			t.Fatalf("the store has %d calls", got)
		}
		undecided[0]()
		undecided = append(undecided[1:], <-g.waiting)
	}
	for _, decide := range undecided {
		decide()
	}
	await(t, "the store has returned all calls", func() bool { return c.deciding.Load() == 0 })
}

// TestAClientThatDoesNotReadStopsNobody has a connection wait for its client while the store has its calls.
func TestAClientThatDoesNotReadStopsNobody(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s, options{Transport: transportOwn})
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	await(t, "the call is counted", func() bool { return c.counted.Load() > 0 })
	c.turnMu.Lock()
	c.stalls()
	if n := w.stored.bytes.Load(); n != 0 {
		t.Errorf("others wait for %d bytes of a client that does not read", n)
	}
	c.flows()
	c.turnMu.Unlock()
	decide()
	client.ends(1)
	await(t, "nothing is counted", func() bool { return w.stored.bytes.Load() == 0 && c.counted.Load() == 0 })
}
