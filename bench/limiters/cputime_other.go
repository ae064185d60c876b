//go:build !linux

package main

import (
	"errors"
	"time"
)

var errNoThreadTime = errors.New("the CPU time of one thread is known on Linux only")

func threadTime() (time.Duration, error) { return 0, errNoThreadTime }

func processTime() (time.Duration, error) { return 0, errNoThreadTime }
