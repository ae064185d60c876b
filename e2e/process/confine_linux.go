package process

import (
	"os/exec"
	"syscall"
)

// confine has the kernel kill the child when its starter ends, however that comes
// about, and gives the child a process group of its own: a Ctrl-C goes to the
// starter alone, which then stops the child by one signal. Two would count as
// impatience.
func confine(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
}
