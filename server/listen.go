package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// listen opens a listener on host:port, unix:///path or unix:@name, an abstract socket. With reusePort,
// another process of the same user may listen on the same TCP port, if it sets SO_REUSEPORT too. A
// socket file gets the mode.
func listen(ctx context.Context, addr string, reusePort bool, mode fs.FileMode) (net.Listener, error) {
	var config net.ListenConfig
	if reusePort {
		config.Control = setReusePort
	}
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		return config.Listen(ctx, "tcp", addr)
	}
	// unix://tmp/s would be the relative path tmp/s, surely by mistake.
	if path = strings.TrimPrefix(path, "//"); !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("listen on %q: must be unix:///path or unix:@name", addr)
	}
	if strings.HasPrefix(path, "@") {
		return config.Listen(ctx, "unix", path)
	}
	l, err := listenSocketFile(ctx, path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", addr, err)
	}
	return l, nil
}

// boundedListener closes connections beyond max at once. So a client that opens too many notices,
// and file descriptors remain for everything else.
type boundedListener struct {
	net.Listener
	max      int64
	open     atomic.Int64
	rejected prometheus.Counter
	now      prometheus.Gauge // shows how many are open, or nil
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			if l.now != nil {
				l.now.Inc()
			}
			return &boundedConn{Conn: conn, from: l}, nil
		}
		l.open.Add(-1)
		l.rejected.Inc()
		_ = conn.Close() // an error changes nothing: the connection is rejected
	}
}

type boundedConn struct {
	net.Conn
	from *boundedListener
	once sync.Once
}

func (c *boundedConn) Close() error {
	c.once.Do(func() {
		c.from.open.Add(-1)
		if c.from.now != nil {
			c.from.now.Dec()
		}
	})
	return c.Conn.Close()
}

// SyscallConn lets the own transport read without a buffer of its own.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	if file, ok := c.Conn.(syscall.Conn); ok {
		return file.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets net/http close its half first. Otherwise a client could see the connection's end
// before it has read why it was rejected.
func (c *boundedConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes the sending half of c where that is possible.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
