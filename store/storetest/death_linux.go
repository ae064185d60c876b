package storetest

import "syscall"

// deathSignal has the server die with the test, also if that is killed.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
