//go:build !unix

package server

import (
	"errors"
	"syscall"
)

// setReusePort returns an error: this system has no SO_REUSEPORT.
func setReusePort(network, _ string, _ syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	return errors.ErrUnsupported
}
