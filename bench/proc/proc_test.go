package proc

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	before := Reading{processes: []Process{{CPU: time.Second}}, self: time.Second, busy: 10 * time.Second, total: 100 * time.Second}
	after := Reading{processes: []Process{{CPU: 3 * time.Second, RSS: 7}}, self: 2 * time.Second, busy: 15 * time.Second, total: 110 * time.Second}
	u := after.Since(before)
	if u.Processes[0] != (Process{CPU: 2 * time.Second, RSS: 7}) || u.Other != 0.2 {
		t.Errorf("Since = %+v, want 2s by the process and a fifth by others", u)
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
	if p := r.processes[0]; p.CPU <= 0 || p.CPU%(10*time.Millisecond) == 0 || p.RSS < 1<<20 || p.PeakRSS < p.RSS || r.busy <= 0 || r.total <= r.busy {
		t.Errorf("Read = %+v, want memory and exact time of this process and the machine", r)
	}
	if _, err := Read([]int{-1}); err == nil {
		t.Error("Read of no process has no error")
	}
}
