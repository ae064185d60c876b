package simulation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// network connects the parties of a simulation in memory. Each direction of a connection delivers
// its bytes in order, after a latency that depends only on the seed and on the number of the
// connection between its two hosts. Hosts are the parts of addresses before the colon.
type network struct {
	seed uint64

	mu        sync.Mutex
	listeners map[string]*listener // by address
	dials     map[string]int       // number of connections by "from>to"
	conns     map[*conn]bool       // open ends
	links     map[string]links     // by host
}

// links are the connections of a host.
type links struct {
	silentUntil time.Time     // no byte arrives or leaves before this time
	extra       time.Duration // additional latency
	slowUntil   time.Time     // of extra
}

func newNetwork(seed uint64) *network {
	return &network{seed: seed, listeners: map[string]*listener{}, dials: map[string]int{}, conns: map[*conn]bool{}, links: map[string]links{}}
}

func hostOf(address string) string {
	host, _, _ := strings.Cut(address, ":")
	return host
}

func (n *network) update(host string, change func(*links)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[host]
	change(&l)
	n.links[host] = l
}

// silence stops all bytes from and to a host for the given time. They arrive later, as with TCP
// over a network that loses packets.
func (n *network) silence(host string, d time.Duration) {
	n.update(host, func(l *links) { l.silentUntil = time.Now().Add(d) })
}

// slow adds latency to all bytes that a host sends or receives, for the given time.
func (n *network) slow(host string, extra, d time.Duration) {
	n.update(host, func(l *links) { l.extra, l.slowUntil = extra, time.Now().Add(d) })
}

// reset resets all connections of a host.
func (n *network) reset(host string) {
	n.mu.Lock()
	var ends []*conn
	for c := range n.conns {
		if hostOf(c.local) == host || hostOf(c.remote) == host {
			ends = append(ends, c)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(ends, func(a, b *conn) int { return cmp.Compare(a.name+a.local, b.name+b.local) })
	for _, c := range ends {
		c.abort()
		time.Sleep(time.Microsecond) // so that the order of the effects is certain
	}
}

// close closes the listeners of a host and resets its connections.
func (n *network) close(host string) {
	n.mu.Lock()
	all := maps.Clone(n.listeners)
	n.mu.Unlock()
	for _, at := range sortedKeys(all) {
		if hostOf(at) == host {
			_ = all[at].Close()
		}
	}
	n.reset(host)
}

// blockedUntil returns when bytes between two hosts flow again, the zero time if they do.
func (n *network) blockedUntil(a, b string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return later(n.links[a].silentUntil, n.links[b].silentUntil)
}

// readableFrom returns when what has arrived can be read. h.mu must be locked.
func (n *network) readableFrom(h *half) time.Time {
	until := n.blockedUntil(h.from, h.to)
	n.mu.Lock()
	defer n.mu.Unlock()
	if until.IsZero() {
		return until
	}
	return until.Add(time.Duration(hashText(h.name) % 100_000)) // so that not all connections continue at once
}

// extraLatency returns the additional latency between two hosts.
func (n *network) extraLatency(a, b string) (extra time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, host := range []string{a, b} {
		if l := n.links[host]; time.Now().Before(l.slowUntil) {
			extra += l.extra
		}
	}
	return extra
}

// listener accepts connections to an address.
type listener struct {
	network *network
	address string
	pending chan *conn
	done    chan struct{}
}

// address implements [net.Addr].
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// operatorHost is a host on the same machine as each peer.
const operatorHost = "operator"

// ipOf returns the address of a host as its peers see it.
func ipOf(host string) net.Addr {
	if host == operatorHost {
		return address("127.0.0.1:1024")
	}
	h := hashText(host)
	return &net.TCPAddr{IP: net.IPv4(10, byte(h>>16), byte(h>>8), byte(h)), Port: 1024 + int(h>>24%50_000)}
}

func (n *network) listen(at string) (net.Listener, error) {
	l := &listener{network: n, address: at, pending: make(chan *conn, 128), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: address(at), Err: syscall.EADDRINUSE}
	}
	n.listeners[at] = l
	return l, nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.pending:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close also resets the connections that have not been accepted.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
		close(l.done)
	}
	l.network.mu.Unlock()
	for {
		select {
		case c := <-l.pending:
			c.abort()
		default:
			return nil
		}
	}
}

func (l *listener) Addr() net.Addr { return address(l.address) }

// dial opens a connection from a host to an address. While one of the hosts is silent it waits.
func (n *network) dial(ctx context.Context, from, to string) (net.Conn, error) {
	n.mu.Lock()
	link := from + ">" + to
	n.dials[link]++
	name := fmt.Sprint(link, "#", n.dials[link])
	n.mu.Unlock()
	failed := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: err} }
	blockedFor := func() time.Duration { return max(0, time.Until(n.blockedUntil(from, hostOf(to)))) }
	for delay := n.latencyOf(name) + n.extraLatency(from, hostOf(to)) + blockedFor(); delay > 0; delay = blockedFor() {
		if !sleep(ctx, delay) {
			return nil, failed(context.Cause(ctx))
		}
	}
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, failed(syscall.ECONNREFUSED)
	}
	client, server := n.pipe(name, from, to)
	select {
	case l.pending <- server:
		return client, nil
	default:
		client.abort()
		return nil, failed(syscall.ECONNREFUSED)
	}
}

// latencyOf returns the latency of bytes of a connection that are written now: 50 us to 450 us, and up
// to 5 ms more for one time in fifty. It depends on the seed, the name and the time alone, so it does
// not matter in which order, or in how many writes, goroutines write at the same time. Its
// nanoseconds make it improbable that two events happen at the same time.
func (n *network) latencyOf(name string) time.Duration {
	random := rand.New(rand.NewPCG(n.seed^hashText(name), uint64(time.Now().UnixNano())))
	d := 50*time.Microsecond + time.Duration(random.Int64N(int64(400*time.Microsecond)))
	if random.IntN(50) == 0 {
		d += time.Duration(random.Int64N(int64(5 * time.Millisecond)))
	}
	return d
}

// pipe returns the two ends of a new connection.
func (n *network) pipe(name, from, to string) (client, server *conn) {
	there := newHalf(n, name+" requests", from, hostOf(to))
	back := newHalf(n, name+" replies", hostOf(to), from)
	if strings.HasSuffix(to, grpcPort) {
		if back.limit = unboundedInFlight; !strings.HasPrefix(from, "hostile-") {
			there.limit = unboundedInFlight
		}
	}
	client = &conn{network: n, name: name, local: from + ":0", remote: to, in: back, out: there}
	server = &conn{network: n, name: name, local: to, remote: from + ":0", in: there, out: back}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[client], n.conns[server] = true, true
	return client, server
}

// conn is one end of a connection.
type conn struct {
	network       *network
	name          string
	local, remote string
	in, out       *half
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *conn) CloseWrite() error           { c.out.end(syscall.EPIPE); return nil }
func (c *conn) RemoteAddr() net.Addr        { return ipOf(hostOf(c.remote)) }

// LocalAddr returns an address of the loopback interface to the operator.
func (c *conn) LocalAddr() net.Addr {
	if hostOf(c.remote) == operatorHost {
		return address("127.0.0.1" + debugPort)
	}
	return address(c.local)
}

// SetLinger makes Close discard what has not arrived, as with TCP and 0 seconds.
func (c *conn) SetLinger(int) error { c.out.update(func() { c.out.discards = true }); return nil }

// Close delivers what was written before, unless SetLinger was called, and then the end of the
// connection.
func (c *conn) Close() error {
	c.forget()
	c.in.fail(net.ErrClosed)
	c.out.end(net.ErrClosed)
	return nil
}

// abort closes the connection and drops all bytes that have not arrived.
func (c *conn) abort() {
	c.forget()
	c.in.fail(syscall.ECONNRESET)
	c.out.fail(syscall.ECONNRESET)
}

func (c *conn) forget() {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	delete(c.network.conns, c)
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.update(func() { c.in.readDeadline = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.update(func() { c.out.writeDeadline = t })
	return nil
}

// Bytes of a direction that can be unread before a write waits. The gRPC server writes with a mutex
// locked, and the time of the bubble does not advance while a goroutine waits for a mutex, so its
// writes must not wait. Those of an Envoy must not, either: it buffers what it sends, and a call ends
// at its deadline.
const maxInFlight, unboundedInFlight = 64 << 10, 64 << 20

// half is one direction of a connection.
type half struct {
	network  *network
	name     string
	from, to string // hosts

	mu                          sync.Mutex
	segments                    []segment
	size, limit                 int // bytes in segments
	last                        time.Time
	ended                       bool  // by the sender, after the segments
	discards                    bool  // at the end, what has not arrived
	err                         error // of reads and writes, at once
	writeErr                    error // after the end
	readDeadline, writeDeadline time.Time
	changed                     chan struct{} // closed at the next change
}

// segment is bytes that arrive together.
type segment struct {
	at    time.Time
	bytes []byte
}

func newHalf(n *network, name, from, to string) *half {
	return &half{network: n, name: name, from: from, to: to, limit: maxInFlight, changed: make(chan struct{})}
}

func (h *half) notifyLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// waitLocked waits for a change, or until a time, unless that is zero.
func (h *half) waitLocked(until time.Time) {
	changed, timeout := h.changed, (<-chan time.Time)(nil)
	h.mu.Unlock()
	defer h.mu.Lock()
	if !until.IsZero() {
		timeout = time.After(time.Until(until))
	}
	select {
	case <-changed:
	case <-timeout:
	}
}

func (h *half) update(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	h.notifyLocked()
}

// end is called by the sender, whose later writes fail.
func (h *half) end(err error) {
	blocked := h.network.blockedUntil(h.from, h.to).After(time.Now())
	h.update(func() {
		h.ended, h.writeErr = true, err
		if h.discards {
			h.segments = slices.DeleteFunc(h.segments, func(s segment) bool { return blocked || s.at.After(time.Now()) })
		}
	})
}

func (h *half) fail(err error) {
	h.update(func() {
		if h.err == nil {
			h.err, h.segments, h.size = err, nil, 0
		}
	})
}

// write queues p. Some writes arrive in two parts.
func (h *half) write(p []byte) (written int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 {
		if err := cmp.Or(h.writeErr, h.err); err != nil {
			return written, err
		}
		if isPast(h.writeDeadline) {
			return written, os.ErrDeadlineExceeded
		}
		if n := min(len(p), h.limit-h.size); n > 0 {
			h.queueLocked(p[:n])
			p, written = p[n:], written+n
		} else {
			h.waitLocked(h.writeDeadline)
		}
	}
	return written, nil
}

func (h *half) queueLocked(p []byte) {
	at := time.Now().Add(h.network.latencyOf(h.name) + h.network.extraLatency(h.from, h.to))
	if h.last.After(at) {
		at = h.last
	}
	h.size += len(p)
	p = append([]byte(nil), p...)
	if late := rand.NewPCG(hashText(h.name), uint64(at.UnixNano())).Uint64(); late%16 == 0 { // in two parts
		h.segments = append(h.segments, segment{at, p[:len(p)/2]})
		at, p = at.Add(time.Duration(late>>4%100_000)), p[len(p)/2:]
	}
	h.last = at
	h.segments = append(h.segments, segment{at, p})
	h.notifyLocked()
}

// read returns the bytes that have arrived, or waits.
func (h *half) read(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.err == nil {
		next := h.readDeadline
		if blocked := h.network.readableFrom(h); blocked.After(time.Now()) {
			next = earlier(next, blocked)
		} else if n = h.takeLocked(p); n > 0 {
			h.notifyLocked()
			return n, nil
		} else if len(h.segments) > 0 {
			next = earlier(next, h.segments[0].at)
		} else if h.ended {
			return 0, io.EOF
		}
		if isPast(h.readDeadline) {
			return 0, os.ErrDeadlineExceeded
		}
		h.waitLocked(next)
	}
	return 0, h.err
}

// takeLocked copies bytes that have arrived to p.
func (h *half) takeLocked(p []byte) (n int) {
	for len(h.segments) > 0 && n < len(p) && !h.segments[0].at.After(time.Now()) {
		s := &h.segments[0]
		m := copy(p[n:], s.bytes)
		n += m
		if s.bytes = s.bytes[m:]; len(s.bytes) == 0 {
			h.segments = h.segments[1:]
		}
	}
	h.size -= n
	return n
}

// isPast reports whether t has been reached; the zero time has not.
func isPast(t time.Time) bool { return !t.IsZero() && !t.After(time.Now()) }

// earlier returns the earlier of two times. It ignores a, if that is the zero time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
