//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "golang.org/x/sys/unix"

// setCbreakMode has the terminal hand over each key at once, and not show it. Restore undoes that. Signals stay, but
// for the one that stops a process: it would leave the terminal like that.
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
