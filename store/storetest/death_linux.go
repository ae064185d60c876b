package storetest

import "syscall"

// deathSignal makes the server die with the test process.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
