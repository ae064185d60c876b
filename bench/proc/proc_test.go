package proc

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	const stat = "42 (a ) (b) S 1 42 42 0 -1 4194560 900 0 3 0 150 25 7 8 20 0 9 0 1234 5678 90 18446744073709551615"
	name, cpu, err := times(stat)
	if err != nil || name != "a ) (b" || cpu != 1750*time.Millisecond {
		t.Errorf("times = %q, %v, %v, want %q, 1.75s, nil", name, cpu, err, "a ) (b")
	}
	for _, bad := range []string{"", "42 (x", "42 (x) S 1", "42 (x) S 1 2 3 4 5 6 7 8 9 10 u s"} {
		if _, _, err := times(bad); err == nil {
			t.Errorf("times(%q) has no error", bad)
		}
	}
}

func TestStatusBytes(t *testing.T) {
	const status = "Name:\tVmRSS: 1 kB\nVmHWM:\t  2048 kB\nVmRSS:\t    12 kB\nThreads:\t9\n"
	for name, want := range map[string]int64{"VmHWM": 2 << 20, "VmRSS": 12 << 10} {
		if got, err := statusBytes(status, name); got != want || err != nil {
			t.Errorf("statusBytes(%s) = %d, %v, want %d", name, got, err, want)
		}
	}
	if got, err := statusBytes(status, "VmSwap"); err == nil {
		t.Errorf("statusBytes of what is absent = %d, want an error", got)
	}
}

func TestMachine(t *testing.T) {
	busy, total, err := machine("cpu  100 10 50 1000 20 3 4 5 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || busy != 1720*time.Millisecond || total != 11920*time.Millisecond {
		t.Errorf("machine = %v, %v, %v, want 1.72s, 11.92s, nil", busy, total, err)
	}
	if _, _, err := machine("intr 1 2 3 4 5 6 7 8 9"); err == nil {
		t.Error("machine of another file has no error")
	}
}

func TestSince(t *testing.T) {
	before := Reading{processes: []Process{{PID: 1, CPU: time.Second}}, self: time.Second, busy: 10 * time.Second, total: 100 * time.Second}
	after := Reading{processes: []Process{{PID: 1, CPU: 3 * time.Second, RSS: 7}}, self: 2 * time.Second, busy: 15 * time.Second, total: 110 * time.Second}
	u := after.Since(before)
	if u.Processes[0] != (Process{PID: 1, CPU: 2 * time.Second, RSS: 7}) || u.Self != time.Second || u.Other != 0.2 {
		t.Errorf("Since = %+v, want 2s by the process, 1s by this one and a fifth by others", u)
	}
}

func TestReadThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	r, err := Read([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.processes[0]; p.RSS < 1<<20 || p.PeakRSS < p.RSS || r.total <= 0 {
		t.Errorf("Read = %+v, want memory and time of this process", r)
	}
	if _, err := Read([]int{-1}); err == nil {
		t.Error("Read of no process has no error")
	}
}
