package process

import (
	"os/exec"
	"syscall"
)

// confine makes the kernel kill the child when its starter ends for any reason. It also creates a
// process group for the child, so that Ctrl-C signals only the starter, which then stops the child
// with one signal; a second signal would end sluice immediately.
func confine(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true
}
