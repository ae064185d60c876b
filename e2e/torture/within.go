package torture

import "os/exec"

// Within starts sluice through another program, such as unshare, which must execute its
// last arguments; see [Options].
func Within(program ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		path, err := exec.LookPath(program[0])
		if err != nil {
			path = program[0] // which says so when it is started
		}
		cmd.Args = append(append([]string(nil), program...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = path
	}
}
