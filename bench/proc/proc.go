// Package proc reads the resource usage of processes and the machine, on Linux.
package proc

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// Process is a reading of a process, or the difference of two.
type Process struct {
	// CPU is user and system time.
	CPU time.Duration
	// RSS is the resident memory in bytes, PeakRSS its maximum.
	RSS, PeakRSS uint64
}

// Reading is a reading of all clocks.
type Reading struct {
	processes []Process
	self      time.Duration
	// busy and total are over all cores.
	busy, total time.Duration
}

// Use is the usage between two readings.
type Use struct {
	// Processes are in the order of the process IDs; RSS is that of the second reading.
	Processes []Process
	// Other is the share of all cores, 0 to 1, used by other processes.
	Other float64
}

// Read reads the given processes, this process and the machine.
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
	t := stat.CPUTotal // guest time is included in user and nice
	busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	r.busy, r.total = seconds(busy), seconds(busy+t.Idle+t.Iowait)
	return r, nil
}

// Since returns the usage since an earlier reading of the same processes.
func (r Reading) Since(before Reading) Use {
	var u Use
	other := r.busy - before.busy - (r.self - before.self)
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
	status, err := proc.NewStatus()
	if err != nil {
		return Process{}, err
	}
	cpu, err := cpuTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{CPU: cpu, RSS: status.VmRSS, PeakRSS: status.VmHWM}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
