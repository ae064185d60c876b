// Package proc reads what processes and the machine have used, by Linux.
package proc

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// Process is one reading of a process, or the difference of two.
type Process struct {
	PID  int
	Name string
	// CPU is user and system time.
	CPU time.Duration
	// RSS is the resident memory in bytes, PeakRSS the most that it ever was.
	RSS, PeakRSS uint64
}

// Reading is one look at every clock.
type Reading struct {
	processes []Process
	self      time.Duration
	// busy and total are of all cores.
	busy, total time.Duration
}

// Use is what was used between two readings.
type Use struct {
	// Processes are in the order of the pids; RSS is that of the second reading.
	Processes []Process
	// Self is this process's own time.
	Self time.Duration
	// Other is the share of all cores, 0..1, that others than these used.
	Other float64
}

// Read reads the processes with these ids, this process and the machine.
func Read(pids []int) (r Reading, err error) {
	for _, pid := range pids {
		p, err := readProcess(pid)
		if err != nil {
			return r, err
		}
		r.processes = append(r.processes, p)
	}
	own, err := readProcess(os.Getpid())
	if err != nil {
		return r, err
	}
	r.self = own.CPU
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return r, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return r, err
	}
	t := stat.CPUTotal // what guests use is counted in user and nice already
	busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	r.busy, r.total = seconds(busy), seconds(busy+t.Idle+t.Iowait)
	return r, nil
}

// Since returns what was used since an earlier reading of the same processes.
func (r Reading) Since(before Reading) Use {
	u := Use{Self: r.self - before.self}
	other := r.busy - before.busy - u.Self
	for i, p := range r.processes {
		p.CPU -= before.processes[i].CPU
		other -= p.CPU
		u.Processes = append(u.Processes, p)
	}
	if total := r.total - before.total; total > 0 {
		u.Other = max(0, float64(other)/float64(total))
	}
	return u
}

// RSS returns the resident memory of the processes, in bytes.
func (r Reading) RSS() float64 {
	var sum float64
	for _, p := range r.processes {
		sum += float64(p.RSS)
	}
	return sum
}

func readProcess(pid int) (Process, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Process{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return Process{}, err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Process{}, err
	}
	cpu, err := cpuTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Name: stat.Comm, CPU: cpu, RSS: status.VmRSS, PeakRSS: status.VmHWM}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
