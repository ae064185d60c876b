//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package file

import "errors"

// Lock returns an error, because this system has no file locks that are released when their
// process ends.
func Lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

// IgnoreSizeSignal does nothing: this system has no such signal.
func IgnoreSizeSignal() {}
