//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

// confine gives the child a process group of its own, as on Linux. The rest has no
// counterpart here: a starter that is killed leaves its programs behind.
func confine(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
