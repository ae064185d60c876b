package luahost

import (
	"net"
	"sync"
)

// A client is a connection and its state.
type client struct {
	conn   net.Conn
	out    []byte // replies that were not sent yet
	asking bool   // ASKING came before the next command
}

// An executor runs commands of connections and appends the replies to out.
type executor interface {
	execute(c *client, args []string, out []byte) []byte
}

// ServeConn serves a connection until it ends, and closes it.
func (s *Server) ServeConn(conn net.Conn) { serveConn(s, conn) }

// Serve serves the connections of a listener until that is closed. Then it closes the connections,
// waits for their goroutines, and returns the error.
func (s *Server) Serve(l net.Listener) error { return serve(l, s.ServeConn) }

func serve(l net.Listener, serveConn func(net.Conn)) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	ended := make(chan struct{})
	defer close(ended)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		done := make(chan struct{})
		serving.Go(func() {
			defer close(done)
			serveConn(conn)
		})
		serving.Go(func() {
			select {
			case <-ended:
				_ = conn.Close() // ends serveConn
			case <-done:
			}
		})
	}
}

func serveConn(e executor, conn net.Conn) {
	c := &client{conn: conn}
	defer func() { _ = conn.Close() }()
	in := newReader(c)
	for {
		args, err := in.command()
		if err, ok := err.(protocolError); ok { //nolint:errorlint // not wrapped
			c.out = appendReply(c.out, failure("ERR Protocol error: "+string(err)))
			_ = c.flush()
			return
		}
		if err != nil {
			return
		}
		if len(args) > 0 {
			c.out = e.execute(c, args, c.out)
		}
	}
}

// Read reads from the connection. It sends all replies first, so pipelined commands are answered in
// one write.
func (c *client) Read(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.conn.Read(p)
}

func (c *client) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > keptBuffer {
		c.out = nil
	}
	return err
}
