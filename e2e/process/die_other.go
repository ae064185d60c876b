//go:build !linux

package process

import "os/exec"

// dieWithParent does nothing where the system has no such service: there, a
// starter that is killed leaves its programs behind.
func dieWithParent(*exec.Cmd) {}
