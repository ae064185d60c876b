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
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	is := *was
	is.Lflag &^= unix.ICANON | unix.ECHO
	is.Cc[unix.VMIN], is.Cc[unix.VTIME], is.Cc[unix.VSUSP] = 1, 0, noKey
	if err := unix.IoctlSetTermios(fd, setTermios, &is); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, was) }, nil
}
