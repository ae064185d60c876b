package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// listen opens a listener on host:port, unix:///path or unix:@name, an abstract socket. It first
// removes a socket file on which no process listens: a container that restarts keeps its volumes,
// and could not listen again. With reusePort, another process of the same user may listen on the
// same TCP port, if it sets SO_REUSEPORT too. A socket file gets the mode.
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
	if !strings.HasPrefix(path, "@") {
		if err := removeStale(ctx, path); err != nil {
			return nil, fmt.Errorf("listen on %q: %w", addr, err)
		}
	}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "@") {
		// To connect is to write to the file. Without this the umask would decide who may, and
		// Envoy runs as another user.
		if err := os.Chmod(path, mode); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file that is no socket is in the way")
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(errors.New("another process listens on it"), conn.Close())
	}
	return os.Remove(path)
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
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
