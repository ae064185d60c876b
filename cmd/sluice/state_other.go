//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "errors"

// lockFile returns an error, because this system has no file locks that are released when their
// process ends.
func lockFile(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

// ignoreFileSizeSignal does nothing: this system has no such signal.
func ignoreFileSizeSignal() {}
