//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "errors"

// lockFile returns an error: this system has no locks that end with their process.
func lockFile(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

func outliveFileLimit() {}
