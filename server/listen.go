package server

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"strings"
)

// listen opens a listener on host:port, unix:///path or unix:@name, an abstract socket. With
// reusePort, other processes of the same user may listen on the same TCP port if they also set
// SO_REUSEPORT. Mode is the mode of a socket file.
func listen(ctx context.Context, addr string, reusePort bool, mode fs.FileMode) (net.Listener, error) {
	var config net.ListenConfig
	if reusePort {
		config.Control = setReusePort
	}
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		return config.Listen(ctx, "tcp", addr)
	}
	// unix://tmp/s would be the relative path tmp/s, which is probably a mistake.
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
