package main

import (
	"os/exec"
	"syscall"
)

// bind makes the kernel end the child with the thread that starts it.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
