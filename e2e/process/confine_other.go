//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

// confine creates a process group for the child, as on Linux. Here, children of a killed starter
// keep running.
func confine(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
