package builtin

import (
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestCallsOfAStoreHaveABound has connections send more calls than may be with a store, which decides none of them.
// They stop reading near the bound. A connection with few calls goes on until all calls of stores take more. Once the
// store decides, all calls are answered.
func TestCallsOfAStoreHaveABound(t *testing.T) {
	t.Parallel()
	const conns, calls = 32, 1000
	s, g := storing(t, oneRule)
	r := serve(t, s)
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
		t.Fatal("this is not the built-in transport")
	}
	var undecided []func()
	drain := func() {
		for len(g.waiting) > 0 {
			undecided = append(undecided, <-g.waiting)
		}
	}
	await(t, "all connections wait, or have sent all calls", func() bool {
		drain()
		n := w.storeMemory.heavy.length.Load()
		for _, c := range w.snapshotConns() {
			if c.storeCalls.Load() == calls {
				n++
			}
		}
		return n == conns
	})
	drain()
	each := w.storeMemory.bytes.Load() / int64(len(undecided))
	t.Logf("%d calls take %d bytes", len(undecided), w.storeMemory.bytes.Load())
	if most := maxHeavyBytes + conns*framesOfATurn/2*each; w.storeMemory.bytes.Load() > most || each < 1<<10 {
		t.Errorf("%d calls take %d bytes, %d each, want at most %d", len(undecided), w.storeMemory.bytes.Load(), each, most)
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
	await(t, "no call is counted", func() bool { return w.storeMemory.bytes.Load() == 0 && w.buffered.bytes.Load() == 0 })
}

// framesOfATurn is how many frames a turn takes.
const framesOfATurn = 256

// TestAllWaitForAStore has the calls of stores take all that they may: a connection that has none reads nothing until
// one of them is returned.
func TestAllWaitForAStore(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s)
	holder := r.rawClient(t)
	holder.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	fill(t, w, c)

	var waiting []*rawClient
	for i := range 3 {
		waiting = append(waiting, r.rawClient(t))
		waiting[i].call(requestOf(t, "k"), 0)
	}
	await(t, "the others wait", func() bool { return w.storeMemory.light.length.Load() == 3 })
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
	r := serve(t, s)
	client := r.rawClient(t)
	go func() {
		for range calls {
			client.goes(client.fr.WriteRSTStream(client.call(requestOf(t, "k"), 0), http2.ErrCodeCancel))
		}
	}()
	_, c := r.only(t)
	undecided := g.undecided(1024)
	for n := len(undecided); n < calls; n++ {
		if got := c.storeCalls.Load(); got > 1024+framesOfATurn/2 {
			t.Fatalf("the store has %d calls", got)
		}
		undecided[0]()
		undecided = append(undecided[1:], <-g.waiting)
	}
	for _, decide := range undecided {
		decide()
	}
	await(t, "the store has returned all calls", func() bool { return c.storeCalls.Load() == 0 })
}

// TestAClientThatDoesNotReadStopsNobody has a connection wait for its client while the store has its calls.
func TestAClientThatDoesNotReadStopsNobody(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	c.mu.Lock()
	c.writeStalled()
	if n := w.storeMemory.bytes.Load(); n != 0 {
		t.Errorf("others wait for %d bytes of a client that does not read", n)
	}
	c.writeResumed()
	c.mu.Unlock()
	decide()
	client.ends(1)
	await(t, "nothing is counted", func() bool { return w.storeMemory.bytes.Load() == 0 && c.countedStoreBytes.Load() == 0 })
}

// TestAStallHidesNoReturns has a connection wait for its own calls, all of which are returned at once after a write had
// to wait for the client: it goes on.
func TestAStallHidesNoReturns(t *testing.T) {
	t.Parallel()
	const calls = 4
	s, g := storing(t, oneRule)
	r := serve(t, s, transport.Limits{MaxStreams: calls})
	client := r.rawClient(t)
	for range calls {
		client.call(requestOf(t, "k"), 0)
	}
	decide := g.undecided(calls)
	_, c := r.only(t)
	await(t, "the calls are counted", func() bool { return c.countedStoreBytes.Load() > 0 && c.storeCalls.Load() == calls })
	c.mu.Lock()
	c.writeStalled()
	c.writeResumed()
	c.storeWake <- struct{}{} // the reader takes it, looks again, and waits
	client.goes(client.fr.WritePing(false, [8]byte{1}))
	await(t, "the reader waits", func() bool { return len(c.storeWake) == 0 })
	for _, d := range decide {
		d()
	}
	c.mu.Unlock()
	client.ends(calls)
	client.call(requestOf(t, "k"), 0)
	(<-g.waiting)()
	client.ends(1)
}

// TestAClosedConnectionIsCounted has a connection close whose client does not read. The store has its call still.
func TestAClosedConnectionIsCounted(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	c.mu.Lock()
	c.writeStalled()
	c.writeResumed()
	c.mu.Unlock()
	_ = client.conn.Close()
	await(t, "the connection has ended", func() bool { return len(w.snapshotConns()) == 0 })
	if w.storeMemory.bytes.Load() == 0 {
		t.Error("the call of a connection that has ended is not counted")
	}
	decide()
	await(t, "nothing is counted", func() bool { return w.storeMemory.bytes.Load() == 0 })
}

// fill has the calls of stores take all that they may, of which the only connection has one.
func fill(t *testing.T, w *Transport, c *connection) {
	t.Helper()
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	w.storeMemory.bytes.Add(maxStoreBytes - c.countedStoreBytes.Load())
}

// TestNobodyWaitsForATurn has two connections wait for stores. The first goes on, but its turn is taken: a write waits
// for its client. The second goes on all the same.
func TestNobodyWaitsForATurn(t *testing.T) {
	t.Parallel()
	s, g := storing(t, oneRule)
	r := serve(t, s)
	holder := r.rawClient(t)
	holder.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.only(t)
	fill(t, w, c)
	first := r.rawClient(t)
	first.call(requestOf(t, "k"), 0)
	await(t, "the first waits", func() bool { return w.storeMemory.light.length.Load() == 1 })
	for _, other := range w.snapshotConns() {
		if other != c {
			other.mu.Lock()
			defer other.mu.Unlock()
		}
	}
	second := r.rawClient(t)
	second.call(requestOf(t, "k"), 0)
	await(t, "the second waits", func() bool { return w.storeMemory.light.length.Load() == 2 })
	decide()
	holder.ends(1)
	(<-g.waiting)()
	second.ends(1)
}

// TestStopDoesNotWaitForAStore stops a transport while connections wait for a store, which decides nothing. Nothing of
// what they have read reaches the store.
func TestStopDoesNotWaitForAStore(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"their own calls": false, "the calls of all": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls = 4
			s, g := storing(t, oneRule)
			r := serve(t, s, transport.Limits{MaxStreams: calls})
			client := r.rawClient(t)
			n := 1
			if !full {
				n = calls
			}
			for range n {
				client.call(requestOf(t, "k"), 0)
			}
			decide := g.undecided(n)
			w, c := r.only(t)
			await(t, "the calls are with the store", func() bool { return c.storeCalls.Load() == int64(n) })
			if full {
				fill(t, w, c)
			}
			client.goes(client.fr.WriteRSTStream(1, http2.ErrCodeCancel))
			client.call(requestOf(t, "k"), 0)
			await(t, "the connection waits", c.activity.waitsForStore.Load)
			r.grpc.Stop()
			if len(g.waiting) > 0 {
				t.Error("a call of a connection that was closed reaches the store")
			}
			for _, d := range decide {
				d()
			}
		})
	}
}

// TestManyWaitForAStore has many connections wait for room for a few calls, some of which are closed meanwhile, by
// either side. A store decides in any order. The others get all their answers.
func TestManyWaitForAStore(t *testing.T) {
	t.Parallel()
	const conns, calls = 60, 40
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, g := storing(t, twoRules(true))
	r := serve(t, s, transport.Limits{MaxStreams: calls / 2})
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	w.storeMemory.bytes.Add(maxStoreBytes - 16<<10) // as if the calls of others took the rest
	done := make(chan struct{})
	var deciding, sending sync.WaitGroup
	deciding.Go(func() { g.shuffle(rand.New(rand.NewPCG(seed, 1)), done) })
	var all []*rawClient
	for i := range conns {
		c := r.rawClient(t)
		all = append(all, c)
		ends := i%4 == 0
		c.goes(c.fr.WriteWindowUpdate(0, 1<<30))
		kinds := random.Perm(calls)
		sending.Go(func() {
			for n, kind := range kinds {
				c.call(requestOf(t, []string{"k", "wait"}[kind%2]), 0)
				if ends && n == calls/2 {
					_ = c.conn.Close()
					return
				}
				if n%(calls/2) == calls/2-1 && !ends {
					c.ends(calls / 2)
				}
			}
		})
	}
	for range 5 {
		for _, c := range w.snapshotConns() {
			if random.IntN(2) == 0 {
				c.postCommand(commandPing)
			}
		}
	}
	sending.Wait()
	for _, c := range all {
		_ = c.conn.Close()
	}
	await(t, "all connections have ended", func() bool { return len(w.snapshotConns()) == 0 })
	close(done)
	deciding.Wait()
	await(t, "all is returned", func() bool { return w.storeMemory.bytes.Load() == maxStoreBytes-16<<10 })
}
