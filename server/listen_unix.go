//go:build unix

package server

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// setReusePort sets SO_REUSEPORT on a TCP socket that is not bound yet.
func setReusePort(network, _ string, conn syscall.RawConn) (err error) {
	if network == "unix" {
		return nil
	}
	controlErr := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(controlErr, err)
}
