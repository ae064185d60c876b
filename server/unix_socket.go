package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// socketFile is a listener on a Unix socket with a file. Close removes the file unless another
// process has replaced it.
type socketFile struct {
	*net.UnixListener
	path   string
	info   fs.FileInfo
	remove sync.Once
}

// listenSocketFile listens on the socket file path and sets its mode. It replaces a file without a
// listener, because containers keep their volumes when they restart.
func listenSocketFile(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a unix listener is a %T", l), l.Close())
	}
	unix.SetUnlinkOnClose(false)
	// Connecting requires write permission. Without chmod, the umask would determine it, and Envoy
	// usually runs as another user.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, os.Remove(path), l.Close())
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socketFile{UnixListener: unix, path: path, info: info}, nil
}

// Close removes the file, if it is still the listener's, and closes the listener.
func (l *socketFile) Close() error {
	l.remove.Do(func() {
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
			_ = os.Remove(l.path) // the next start replaces a file without a listener
		}
	})
	return l.UnixListener.Close()
}

// removeStaleSocket removes the socket file path if no process listens on it. Only a refused
// connection proves that. If connecting fails with another error, such as a full queue or a missing
// permission, the file stays.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("the path exists and is not a socket")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens on it"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, os.ErrNotExist): // another process has just removed it
		return nil
	}
	return fmt.Errorf("the socket may be in use by another process (remove the file if it is not): %w", err)
}
