//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

// confine gives the child a process group of its own, as on Linux. A starter that is
// killed leaves its programs behind here.
func confine(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
