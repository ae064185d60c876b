package process

import (
	"os/exec"
	"syscall"
)

// confine makes the kernel kill the child when its starter ends for any reason. It also
// gives the child a process group of its own, so Ctrl-C reaches the starter alone, which
// then stops the child by one signal. A second signal would end sluice at once.
func confine(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
}
