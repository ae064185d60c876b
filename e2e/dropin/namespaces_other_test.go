//go:build !linux

package dropin

import (
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

var regexpUID = regexp.MustCompile(`^$`)

func namespaceModes() []string { return nil }

func inNamespaces(*testing.T, string, ...string) *exec.Cmd { return nil }

func setUpNamespaces() error { return nil }

func readOnly(*testing.T, string) {}

func confinedTo(string, string, int) *syscall.SysProcAttr { return nil }

func hostUID(string, int) string { return "" }
