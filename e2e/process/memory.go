package process

import (
	"fmt"
	"os"
	"strings"
)

// Memory is the current and peak resident memory of a process in bytes.
type Memory struct{ RSS, Peak int }

// MemoryOf returns the kernel's figures of a process. It returns an error if the process has ended
// or the system does not have Linux's /proc.
func MemoryOf(pid int) (m Memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*int{"VmRSS": &m.RSS, "VmHWM": &m.Peak}[name]
		if into == nil {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d kB", into); err != nil {
			return m, fmt.Errorf("read %q: %w", line, err)
		}
		*into <<= 10
	}
	if m.RSS == 0 {
		return m, fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return m, nil
}
