// Package proc reads from Linux's /proc what processes and the machine have used.
// See proc(5).
package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is what /proc counts processor time in. USER_HZ is 100 on every Linux
// that Go runs on.
const tick = time.Second / 100

// Process is one reading of a process, or the difference of two.
type Process struct {
	PID  int
	Name string
	// CPU is user and system time, in steps of 10 ms.
	CPU time.Duration
	// RSS is the resident memory in bytes, PeakRSS the most that it ever was.
	RSS, PeakRSS int64
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
func Read(pids []int) (Reading, error) {
	var r Reading
	for _, pid := range pids {
		p, err := readProcess(pid)
		if err != nil {
			return r, err
		}
		r.processes = append(r.processes, p)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return r, fmt.Errorf("get own usage: %w", err)
	}
	r.self = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return r, err
	}
	r.busy, r.total, err = machine(string(stat))
	return r, err
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

func readProcess(pid int) (Process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid}
	if p.Name, p.CPU, err = times(string(stat)); err != nil {
		return p, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	if p.RSS, err = statusBytes(string(status), "VmRSS"); err != nil {
		return p, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	p.PeakRSS, err = statusBytes(string(status), "VmHWM")
	return p, err
}

// times reads the name and the processor time out of /proc/PID/stat.
func times(stat string) (name string, cpu time.Duration, err error) {
	// The name in parentheses may hold anything, so fields count from the last ')'.
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, fmt.Errorf("no name in %q", stat)
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 13 {
		return "", 0, fmt.Errorf("too few fields in %q", stat)
	}
	for _, f := range fields[11:13] { // utime, stime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return "", 0, fmt.Errorf("parse time: %w", err)
		}
		cpu += time.Duration(ticks) * tick
	}
	return stat[open+1 : end], cpu, nil
}

// statusBytes reads a line `Name:  N kB` of /proc/PID/status.
func statusBytes(status, name string) (int64, error) {
	_, rest, ok := strings.Cut(status, "\n"+name+":")
	if !ok {
		return 0, fmt.Errorf("no %s", name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", name, err)
	}
	return kb << 10, nil
}

// machine reads the time of all cores out of /proc/stat.
func machine(stat string) (busy, total time.Duration, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	// user nice system idle iowait irq softirq steal; the guest fields after these
	// are counted in user and nice already.
	const idle, iowait = 3, 4
	for i, f := range fields[1:9] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		total += time.Duration(ticks) * tick
		if i != idle && i != iowait {
			busy += time.Duration(ticks) * tick
		}
	}
	return busy, total, nil
}
