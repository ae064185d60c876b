package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

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
	// Connecting requires write permission. Without chmod, the umask would determine it, and Envoy
	// usually runs as another user.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
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
