package process

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when its starter ends, however that
// comes about.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
