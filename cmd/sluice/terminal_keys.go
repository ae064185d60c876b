//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "golang.org/x/sys/unix"

// setCbreakMode makes the terminal deliver each key immediately and without echo. Keys still send
// signals, except for the one that suspends the process, which would leave the terminal in this
// mode.
func (s *screen) setCbreakMode() (restore func(), err error) {
	if s.in == nil {
		return func() {}, nil
	}
	fd := int(s.in.Fd())
	previous, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	mode := *previous
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME], mode.Cc[unix.VSUSP] = 1, 0, noKey
	if err := unix.IoctlSetTermios(fd, setTermios, &mode); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, previous) }, nil
}
