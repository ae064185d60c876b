package builtin

import (
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestStoreCallsAreBounded sends more calls than a store may have, while the store decides none.
// The connections stop reading near the limit. A connection with few calls continues up to the
// higher limit. When the store decides, all calls are answered.
func TestStoreCallsAreBounded(t *testing.T) {
	t.Parallel()
	const conns, calls = 32, 1000
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	request := requestOf(t, "k")
	var clients []*rawClient
	for range conns {
		c := r.rawClient(t)
		c.must(c.fr.WriteWindowUpdate(0, 1<<30))
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
	if most := maxHeavyBytes + conns*framesPerBatch/2*each; w.storeMemory.bytes.Load() > most || each < 1<<10 {
		t.Errorf("%d calls take %d bytes, %d each, want at most %d", len(undecided), w.storeMemory.bytes.Load(), each, most)
	}

	other := r.rawClient(t)
	other.call(request, 0)
	(<-g.waiting)()
	other.readEnds(1)

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
		c.readEnds(calls)
	}
	<-done
	await(t, "no call is counted", func() bool { return w.storeMemory.bytes.Load() == 0 && w.buffered.bytes.Load() == 0 })
}

// framesPerBatch is the number of frames in a batch.
const framesPerBatch = 256

// TestAllConnectionsWaitForStore has the calls in a store take all memory: a connection without
// calls reads nothing until one returns.
func TestAllConnectionsWaitForStore(t *testing.T) {
	t.Parallel()
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	holder := r.rawClient(t)
	holder.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.onlyConnection(t)
	fill(t, w, c)

	var waiting []*rawClient
	for i := range 3 {
		waiting = append(waiting, r.rawClient(t))
		waiting[i].call(requestOf(t, "k"), 0)
	}
	await(t, "the others wait", func() bool { return w.storeMemory.light.length.Load() == 3 })
	if len(g.waiting) > 0 {
		t.Error("a call beyond the limit reached the store")
	}
	decide()
	holder.readEnds(1)
	for range waiting { // one after another, at the end of each other's batch
		(<-g.waiting)()
	}
	for _, c := range waiting {
		c.readEnds(1)
	}
}

// TestConnectionWaitsForOwnCalls has a client reset its calls at once: the store has at most as
// many of them as the connection may have streams, and one batch more.
func TestConnectionWaitsForOwnCalls(t *testing.T) {
	t.Parallel()
	const calls = 3000
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	go func() {
		for range calls {
			client.must(client.fr.WriteRSTStream(client.call(requestOf(t, "k"), 0), http2.ErrCodeCancel))
		}
	}()
	_, c := r.onlyConnection(t)
	undecided := g.receive(1024)
	for n := len(undecided); n < calls; n++ {
		if got := c.storeCalls.Load(); got > 1024+framesPerBatch/2 {
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

// TestNotReadingClientBlocksNoOther has a connection wait for its client while the store has its
// calls.
func TestNotReadingClientBlocksNoOther(t *testing.T) {
	t.Parallel()
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.onlyConnection(t)
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	c.mu.Lock()
	c.writeStalled()
	if n := w.storeMemory.bytes.Load(); n != 0 {
		t.Errorf("%d bytes of a client that does not read are still counted", n)
	}
	c.writeResumed()
	c.mu.Unlock()
	decide()
	client.readEnds(1)
	await(t, "nothing is counted", func() bool { return w.storeMemory.bytes.Load() == 0 && c.countedStoreBytes.Load() == 0 })
}

// TestReturnsDuringStall has a connection wait for its own calls, which return at once after a
// stalled write: it continues.
func TestReturnsDuringStall(t *testing.T) {
	t.Parallel()
	const calls = 4
	s, g := newGatedService(t, oneRule)
	r := serve(t, s, transport.Limits{MaxStreams: calls})
	client := r.rawClient(t)
	for range calls {
		client.call(requestOf(t, "k"), 0)
	}
	decide := g.receive(calls)
	_, c := r.onlyConnection(t)
	await(t, "the calls are counted", func() bool { return c.countedStoreBytes.Load() > 0 && c.storeCalls.Load() == calls })
	c.mu.Lock()
	c.writeStalled()
	c.writeResumed()
	c.storeWake <- struct{}{} // the reader takes it, checks again, and waits
	client.must(client.fr.WritePing(false, [8]byte{1}))
	await(t, "the reader waits", func() bool { return len(c.storeWake) == 0 })
	for _, d := range decide {
		d()
	}
	c.mu.Unlock()
	client.readEnds(calls)
	client.call(requestOf(t, "k"), 0)
	(<-g.waiting)()
	client.readEnds(1)
}

// TestClosedConnectionIsCounted closes a connection whose client does not read, while a store has
// its call.
func TestClosedConnectionIsCounted(t *testing.T) {
	t.Parallel()
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.onlyConnection(t)
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	c.mu.Lock()
	c.writeStalled()
	c.writeResumed()
	c.mu.Unlock()
	_ = client.conn.Close()
	await(t, "the connection has ended", func() bool { return len(w.snapshotConns()) == 0 })
	if w.storeMemory.bytes.Load() == 0 {
		t.Error("the call of a closed connection is not counted")
	}
	decide()
	await(t, "nothing is counted", func() bool { return w.storeMemory.bytes.Load() == 0 })
}

// fill has the calls in a store take all memory. The only connection has one of them.
func fill(t *testing.T, w *Transport, c *connection) {
	t.Helper()
	await(t, "the call is counted", func() bool { return c.countedStoreBytes.Load() > 0 })
	w.storeMemory.bytes.Add(maxStoreBytes - c.countedStoreBytes.Load())
}

// TestWaitersDoNotWaitForLock has two connections wait for a store. The first is woken, but its
// lock is taken by a write that waits for the client. The second continues nevertheless.
func TestWaitersDoNotWaitForLock(t *testing.T) {
	t.Parallel()
	s, g := newGatedService(t, oneRule)
	r := serve(t, s)
	holder := r.rawClient(t)
	holder.call(requestOf(t, "k"), 0)
	decide := <-g.waiting
	w, c := r.onlyConnection(t)
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
	holder.readEnds(1)
	(<-g.waiting)()
	second.readEnds(1)
}

// TestStopDoesNotWaitForStore stops a transport while connections wait for a store, which decides
// nothing. None of their input reaches the store.
func TestStopDoesNotWaitForStore(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"their own calls": false, "the calls of all": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls = 4
			s, g := newGatedService(t, oneRule)
			r := serve(t, s, transport.Limits{MaxStreams: calls})
			client := r.rawClient(t)
			n := 1
			if !full {
				n = calls
			}
			for range n {
				client.call(requestOf(t, "k"), 0)
			}
			decide := g.receive(n)
			w, c := r.onlyConnection(t)
			await(t, "the store has the calls", func() bool { return c.storeCalls.Load() == int64(n) })
			if full {
				fill(t, w, c)
			}
			client.must(client.fr.WriteRSTStream(1, http2.ErrCodeCancel))
			client.call(requestOf(t, "k"), 0)
			await(t, "the connection waits", c.activity.waitsForStore.Load)
			r.grpc.Stop()
			if len(g.waiting) > 0 {
				t.Error("a call of a closed connection reached the store")
			}
			for _, d := range decide {
				d()
			}
		})
	}
}

// TestManyConnectionsWaitForStore has many connections wait for a little memory. Some are closed
// meanwhile, by either side, and the store decides in random order. The others get all their
// answers.
func TestManyConnectionsWaitForStore(t *testing.T) {
	t.Parallel()
	const conns, calls = 60, 40
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, g := newGatedService(t, twoRules(true))
	r := serve(t, s, transport.Limits{MaxStreams: calls / 2})
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	w.storeMemory.bytes.Add(maxStoreBytes - 16<<10) // as if the calls of other connections took the rest
	done := make(chan struct{})
	var deciding, sending sync.WaitGroup
	deciding.Go(func() { g.decideShuffled(rand.New(rand.NewPCG(seed, 1)), done) })
	var all []*rawClient
	for i := range conns {
		c := r.rawClient(t)
		all = append(all, c)
		ends := i%4 == 0
		c.must(c.fr.WriteWindowUpdate(0, 1<<30))
		kinds := random.Perm(calls)
		sending.Go(func() {
			for n, kind := range kinds {
				c.call(requestOf(t, []string{"k", "wait"}[kind%2]), 0)
				if ends && n == calls/2 {
					_ = c.conn.Close()
					return
				}
				if n%(calls/2) == calls/2-1 && !ends {
					c.readEnds(calls / 2)
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
