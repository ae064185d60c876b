package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A Conn is a connection to one server. Its methods may be called concurrently. Calls wait for
// their replies without a deadline, until Close.
type Conn struct {
	Address string
	timeout time.Duration // maximum duration of a query
	conn    net.Conn
	Done    chan struct{} // closed when the connection has ended

	write sync.Mutex // held while commands are written

	mu      sync.Mutex
	waiting []*Exchange // exchanges that wait for replies, in the order of their commands
	idle    []*Exchange // exchanges to reuse
	ended   error       // error that ended the connection
	replied time.Time   // when the server last replied

	// Used by the reader alone: the reply being read, nil between replies, and its exchange.
	reply    *resp.Reply
	exchange *Exchange
}

// readSize is the size of the read buffer.
const readSize = 4 << 10

// Dial connects and authenticates until ctx ends. The connection and each command may take timeout.
func Dial(ctx context.Context, to *Server, timeout time.Duration) (*Conn, error) {
	user, password, err := to.Auth.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := to.connect(ctx, timeout)
	if err != nil {
		return nil, err
	}
	c := New(conn, to.Address, timeout)
	if err := c.Within(ctx, timeout, func() error { return c.authenticate(ctx, user, password, to.Database) }); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// New returns a Conn for a connection to the server at an address, and starts its reader.
func New(conn net.Conn, address string, timeout time.Duration) *Conn {
	c := &Conn{Address: address, timeout: timeout, conn: conn, Done: make(chan struct{})}
	go c.read()
	return c
}

func (s *Server) connect(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if s.TLS == nil {
		dial := s.DialContext
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		conn, err := dial(ctx, s.Network, s.Address)
		if err == nil {
			discardAtClose(conn)
		}
		return conn, err
	}
	config, err := s.TLS.config(s.host())
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, s.Network, s.Address)
	if secure, ok := conn.(*tls.Conn); ok && err == nil {
		discardAtClose(secure.NetConn())
	}
	return conn, err
}

// discardAtClose makes the system discard undelivered data when conn is closed. Otherwise it would
// retransmit commands of an abandoned connection, which could then run after those of a later
// connection.
func discardAtClose(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0)
	}
}

// authenticate sends the credentials and selects the database.
func (c *Conn) authenticate(ctx context.Context, user, password string, database int) error {
	var commands [][]string
	switch {
	case user != "":
		commands = append(commands, []string{"AUTH", user, password})
	case password != "":
		commands = append(commands, []string{"AUTH", password})
	}
	if database != 0 {
		commands = append(commands, []string{"SELECT", strconv.Itoa(database)})
	}
	for _, command := range commands {
		if _, err := c.Query(ctx, ShortReply, command...); err != nil {
			return err
		}
	}
	return nil
}

// Within calls do, which exchanges commands, and closes c if no reply comes for timeout, or ctx ends.
// So each of several commands may take that long.
func (c *Conn) Within(ctx context.Context, timeout time.Duration, do func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, c.Close)
	began := clock()
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if left := timeout - min(clock().Sub(began), clock().Sub(c.LastReplied())); left > 0 {
			if ctx.Err() == nil { // otherwise Within has returned
				timer.Reset(left)
			}
		} else {
			cancel(context.DeadlineExceeded)
		}
	})
	defer timer.Stop()
	timer.Reset(timeout)
	err := do()
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// clock reads the machine's time, which measures how long servers take.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// LastReplied returns when the server last replied to a command, zero if it did not.
func (c *Conn) LastReplied() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replied
}

// Close closes the connection and fails all waiting calls. It does not wait.
func (c *Conn) Close() { c.closeWith(net.ErrClosed) }

// closeWith is Close with an error for the waiting calls.
func (c *Conn) closeWith(why error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = why
	}
	c.mu.Unlock()
	_ = c.conn.Close() // ends the reader, which fails the waiting calls
}

// Err returns the error that ended the connection.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// read reads replies until the connection ends.
func (c *Conn) read() {
	defer func() {
		if thrown := recover(); thrown != nil {
			c.closeWith(&panicError{thrown, debug.Stack()})
		}
		c.mu.Lock()
		waiting := c.waiting
		why := c.ended
		c.waiting = nil
		c.mu.Unlock()
		close(c.Done)
		for _, x := range waiting {
			x.done <- why
		}
	}()
	var replies resp.Decoder
	buf := make([]byte, readSize)
	for {
		n, err := c.conn.Read(buf)
		if bad := c.deliverAll(&replies, buf[:n]); bad != nil {
			err = bad
		}
		if err != nil {
			c.closeWith(err)
			return
		}
	}
}

func (c *Conn) deliverAll(replies *resp.Decoder, p []byte) error {
	now := clock()
	for len(p) > 0 {
		if c.reply == nil && !c.nextReply() {
			return BadReply("read from %s: %q, which is not a reply to a command", c.Address, p[:min(len(p), 40)])
		}
		n, done, err := replies.Decode(p, c.reply)
		if err != nil {
			return BadReply("read from %s: %w", c.Address, err)
		}
		p = p[n:]
		if done {
			c.deliver(now)
		}
	}
	return nil
}

// nextReply sets the destination of the next reply. It reports false if there is none.
func (c *Conn) nextReply() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return false
	}
	c.exchange = c.waiting[0]
	c.reply = c.exchange.replies[c.exchange.received]
	return true
}

// deliver hands the completed reply, which was read at the time now, to its exchange.
func (c *Conn) deliver(now time.Time) {
	x := c.exchange
	c.exchange = nil
	c.reply = nil
	x.received++
	done := x.received == len(x.replies)
	c.mu.Lock()
	c.replied = now
	if done {
		c.waiting = append(c.waiting[:0], c.waiting[1:]...)
	}
	c.mu.Unlock()
	if done {
		x.done <- nil
	}
}

// An Exchange is commands that are sent in one write, with the destinations of their replies.
type Exchange struct {
	out      []byte
	replies  []*resp.Reply
	received int        // number of complete replies
	done     chan error // receives nil after the last reply, or an error
}

// maxKeptBuffer is the maximum size of a buffer of commands that is reused.
const maxKeptBuffer = 64 << 10

// Begin returns an empty exchange. The caller must free it.
func (c *Conn) Begin() *Exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return &Exchange{done: make(chan error, 1)}
	}
	x := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return x
}

// Free puts x back for reuse.
func (c *Conn) Free(x *Exchange) {
	if cap(x.out) > maxKeptBuffer {
		x.out = nil
	}
	clear(x.replies)
	x.out = x.out[:0]
	x.replies = x.replies[:0]
	x.received = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, x) // bounded by the number of concurrent exchanges
}

// Command begins a command with the given number of arguments, which follow. Its reply goes to r,
// which must have been reset.
func (x *Exchange) Command(r *resp.Reply, arguments int) {
	x.out = resp.AppendCommand(x.out, arguments)
	x.replies = append(x.replies, r)
}

// Append adds a command. Its reply goes to r, which must have been reset.
func (x *Exchange) Append(r *resp.Reply, args ...string) {
	x.Command(r, len(args))
	for _, arg := range args {
		x.Argument(arg)
	}
}

// Argument adds an argument to the last command.
func (x *Exchange) Argument(text string) { x.out = resp.AppendArgument(x.out, text) }

// Exchange sends the commands of x, at least one, and waits for all replies. The server's errors
// are replies. After any other error the connection is closed.
func (c *Conn) Exchange(x *Exchange) error {
	c.write.Lock()
	c.mu.Lock()
	if c.ended != nil {
		err := c.ended
		c.mu.Unlock()
		c.write.Unlock()
		return err
	}
	c.waiting = append(c.waiting, x) // before the reply can arrive
	c.mu.Unlock()
	_, err := c.conn.Write(x.out)
	c.write.Unlock()
	if err != nil {
		c.closeWith(err)
	}
	err = <-x.done
	if thrown, ok := errors.AsType[*panicError](err); ok {
		panic(thrown) //nolint:forbidigo // see panicError
	}
	return err
}

// A panicError carries a panic of the reader, a bug, with its stack to the waiting callers, which
// panic again under their own recover.
type panicError struct {
	thrown any
	stack  []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%v, in the reader of replies:\n%s", e.thrown, e.stack)
}

// ReplyError returns the error that r is, or nil.
func ReplyError(r *resp.Reply) error {
	if r.Kind(0) == resp.Failed {
		return NewServerError(r.Text(0))
	}
	return nil
}

// NewServerError returns an error with the text of a server, which is truncated because it is
// logged.
func NewServerError(text string) ServerError {
	return ServerError(strings.Clone(text[:min(len(text), 300)]))
}
