package server

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
)

// TestInflate decompresses messages of many sizes and kinds, within bounds and beyond, freely and in parts.
func TestInflate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, 100, 4 << 10, freelyInflated - 1, freelyInflated, inflatedAtOnce, 100_000, 1 << 20} {
		for kind, message := range map[string][]byte{"alike": make([]byte, size), "random": random(r, size)} {
			small := zipped(message)
			for _, most := range []int{size - 1, size, size + 1, 4 << 20} {
				parts := 0
				z := &inflater{parted: func(held int) {
					if parts++; held > max(most+1, 0) {
						t.Errorf("%d bytes are held, of %d allowed", held, most)
					}
				}}
				z, err := z.inflate(small, most, inflatedAtOnce)
				if most < size {
					if !errors.Is(err, errInflatedTooLarge) {
						t.Errorf("%d bytes %s, %d allowed: %v", size, kind, most, err)
					}
					continue
				}
				if err != nil || !bytes.Equal(z.out, message) {
					t.Fatalf("%d bytes %s: %v", size, kind, err)
				}
				if want := (size + len(small)) / inflatedAtOnce; parts < want-want/4-1 || parts > want+1 {
					t.Errorf("%d bytes %s come in %d parts, want %d", size, kind, parts, want)
				}
				z.release()
				switch z, err = inflateFreely(small, most); {
				case errors.Is(err, errNotSmall) && size+len(small) >= freelyInflated:
				case err != nil || size+len(small) >= freelyInflated || !bytes.Equal(z.out, message):
					t.Fatalf("%d bytes %s, freely: %v", size, kind, err)
				default:
					z.release()
				}
			}
		}
	}
}

func random(r *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

// TestInflateCountsWhatComesToNothing has parts of a message that are inflated to nothing: they take time too.
func TestInflateCountsWhatComesToNothing(t *testing.T) {
	small := bytes.Repeat(zipped(nil), 10_000)
	if _, err := inflateFreely(small[:freelyInflated], 100); !errors.Is(err, errNotSmall) {
		t.Errorf("a message of nothing is inflated without a ticket: %v", err)
	}
	parts := 0
	z, err := inflateLarge(small, 100, func(int) { parts++ })
	if err != nil || len(z.out) != 0 || parts < len(small)/inflatedAtOnce {
		t.Fatalf("%d bytes come in %d parts: %v", len(small), parts, err)
	}
	z.release()
}

// TestInflateFaults has what is no gzip, or not whole.
func TestInflateFaults(t *testing.T) {
	small := zipped(make([]byte, 100_000))
	for n := range small {
		if z, err := inflateLarge(small[:n], 1<<20, func(int) {}); err == nil {
			t.Fatalf("%d of %d bytes are a message of %d", n, len(small), len(z.out))
		}
	}
	for n := range small {
		bad := bytes.Clone(small)
		bad[n] ^= 0x55
		if z, err := inflateLarge(bad, 1<<20, func(int) {}); err == nil { // in the header there may be anything
			z.release()
		}
	}
}

// TestSmallRequestsInflateWithoutMemory holds that ordinary requests may be compressed at no cost.
func TestSmallRequestsInflateWithoutMemory(t *testing.T) {
	small := zipped(marshal(t, simpleRequest()))
	z := new(inflater)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := z.inflate(small, 4<<20, freelyInflated); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestLargeCompressedRequestsTakeTickets has all tickets taken: a small compressed request is answered, and a
// large one waits.
func TestLargeCompressedRequestsTakeTickets(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	r := serve(t, s, Options{Transport: transportOwn})
	c, neighbour := r.rawClient(t), r.rawClient(t)
	w, ok := r.grpc.(*wire)
	if !ok {
		t.Fatal("this is not the own transport")
	}
	for range cap(w.crowd) {
		w.crowd <- struct{}{}
	}
	large := simpleRequest()
	large.GetDescriptors()[0].GetEntries()[0].Value = strings.Repeat("x", 1<<20)
	c.zips(marshal(t, large))
	over := make(chan string, 1)
	go func() { over <- c.ends(1)[1] }()
	neighbour.zips(marshal(t, simpleRequest()))
	if got := neighbour.ends(1)[1]; got != "0" {
		t.Errorf("a small request ends with %s", got)
	}
	select {
	case got := <-over:
		t.Errorf("a large request ends with %s though there is no ticket", got)
	default:
	}
	for range cap(w.crowd) {
		<-w.crowd
	}
	if got := <-over; got != "0" {
		t.Errorf("a large request ends with %s", got)
	}
	await(t, "no ticket is held", func() bool { return len(w.crowd) == 0 })
	await(t, "nothing is counted", func() bool { return w.parked.Load() == 0 })
}

// TestInflatedBytesAreCounted looks at what a connection counts while a message is inflated, and has the one
// that holds the most closed for it.
func TestInflatedBytesAreCounted(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	w := newWire(Config{Limits: fillLimits(Limits{}), Handler: NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newWireConn(w, ours)
	w.conns[c] = struct{}{}
	w.parked.Add(mostParked - 1<<20) // what others hold
	z, err := c.inflateLocked(zipped(make([]byte, 3<<20)), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	z.release()
	if why := endedBy(t, s); why["memory"] != 1 {
		t.Errorf("connections were ended by reason: %v, want one by memory", why)
	}
	c.parksLocked(0)
	if got := w.parked.Load(); got != mostParked-1<<20 {
		t.Errorf("%d bytes are counted in the end, want %d", got, mostParked-1<<20)
	}
	c.leaveCrowd()
	if len(w.crowd) != 0 {
		t.Errorf("%d tickets are held in the end", len(w.crowd))
	}
}

// TestDecompressorTakesTickets is TestLargeCompressedRequestsTakeTickets for what grpc-go decompresses by.
func TestDecompressorTakesTickets(t *testing.T) {
	d := newDecompressor(1 << 20)
	for range cap(d.tickets) {
		d.tickets <- struct{}{}
	}
	if got, err := d.Do(bytes.NewReader(zipped([]byte("small")))); string(got) != "small" || err != nil {
		t.Errorf("a small message becomes %q, %v", got, err)
	}
	type result struct {
		message []byte
		err     error
	}
	over := make(chan result, 1)
	large := zipped(make([]byte, 1<<20))
	go func() {
		message, err := d.Do(bytes.NewReader(large))
		over <- result{message, err}
	}()
	select {
	case got := <-over:
		t.Errorf("a large message becomes %d bytes, %v, though there is no ticket", len(got.message), got.err)
	default:
	}
	for range cap(d.tickets) {
		<-d.tickets
	}
	if got := <-over; len(got.message) != 1<<20 || got.err != nil {
		t.Errorf("a large message becomes %d bytes, %v", len(got.message), got.err)
	}
	if got, err := d.Do(bytes.NewReader(zipped(make([]byte, 1<<20+1)))); len(got) != 1<<20+1 || err != nil {
		t.Errorf("one that is too large becomes %d bytes, %v, want one too many", len(got), err)
	}
	if _, err := d.Do(bytes.NewReader(large[:len(large)-1])); err == nil {
		t.Error("a message without its end is one")
	}
	if len(d.tickets) != 0 {
		t.Errorf("%d tickets are held in the end", len(d.tickets))
	}
}

// TestAMessageThatIsNoGzipIsNoEnd has a stream's request end right after a message that cannot be inflated: its
// handler must not take that for the end of what was said.
func TestAMessageThatIsNoGzipIsNoEnd(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	w := newWire(Config{Limits: fillLimits(Limits{}), Handler: NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	b, err := newBridged(newWireConn(w, ours), &h2.Call{}, &bridgedMethod{}, false)
	if err != nil {
		t.Fatal(err)
	}
	b.Receive([]byte("no gzip"), true)
	b.End(h2.Status{})
	if _, err := b.next(); status.Code(err) != codes.Internal {
		t.Errorf("the handler gets %v, want INTERNAL", err)
	}
}
