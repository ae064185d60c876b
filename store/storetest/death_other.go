//go:build !linux

package storetest

import "syscall"

func deathSignal() *syscall.SysProcAttr { return nil }
