package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/proc"
)

// collections is how many forced collections the median is taken of, fewer once
// they have taken patience: beside ten million counters of pointers one takes many
// seconds.
const (
	collections = 5
	patience    = 10 * time.Second
)

// A footprint is what counters cost while nobody asks for them, found by a process of
// its own for each contender.
type footprint struct {
	Counters int
	// Heap and RSS are bytes of all counters: on Go's heap, and resident in all.
	Heap, RSS int64
	// Collect is the CPU time of all threads in one forced collection: marking,
	// sweeping, and what else the runtime does meanwhile.
	Collect time.Duration
	Evicted uint64
}

// perCounter is the larger of heap and resident memory.
func (m *footprint) perCounter() float64 { return float64(max(m.Heap, m.RSS)) / float64(m.Counters) }

// occupy makes the counters of one contender in this process.
func occupy(c *contender, counters int) (*footprint, error) {
	heap, rss, err := inUse()
	if err != nil {
		return nil, err
	}
	// Without collections while the counters are made, or that takes minutes.
	percent := debug.SetGCPercent(-1)
	s, err := c.open(setting{counters, lasting})
	if err != nil {
		return nil, err
	}
	c.fill(s, counters)
	debug.SetGCPercent(percent)
	m := &footprint{Counters: counters}
	if m.Heap, m.RSS, err = inUse(); err != nil {
		return nil, err
	}
	m.Heap, m.RSS = m.Heap-heap, m.RSS-rss
	var times []time.Duration
	for sum := time.Duration(0); len(times) < collections && sum < patience; {
		before, err := processTime()
		if err != nil {
			return nil, err
		}
		runtime.GC()
		after, err := processTime()
		if err != nil {
			return nil, err
		}
		times = append(times, after-before)
		sum += after - before
	}
	slices.Sort(times)
	m.Collect = times[len(times)/2]
	if s.evicted != nil {
		m.Evicted = s.evicted()
	}
	runtime.KeepAlive(s)
	return m, nil
}

// inUse returns the bytes of live objects and of resident memory.
func inUse() (heap, rss int64, err error) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r, err := proc.Read([]int{os.Getpid()})
	if err != nil {
		return 0, 0, err
	}
	return int64(m.HeapAlloc), r.Since(r).Processes[0].RSS, nil //nolint:gosec // far below 2^63
}

// writeMemory is the command's part in such a process.
func writeMemory(w io.Writer, contenders []*contender, name string, counters int) error {
	for _, c := range contenders {
		if c.name != name {
			continue
		}
		m, err := occupy(c, counters)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(m)
	}
	return fmt.Errorf("contender %q: not known", name)
}

// readMemory starts such a process.
func readMemory(ctx context.Context, name string, counters int) (*footprint, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-occupy", name, "-counters", strconv.Itoa(counters)) //nolint:gosec // this program
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("measure the memory of %s: %w", name, err)
	}
	var m footprint
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("read the memory of %s: %w", name, err)
	}
	return &m, nil
}

// measureMemory measures all contenders with o.counters, and the collector with
// o.many.
func (m *run) measureMemory(ctx context.Context) error {
	m.memory, m.collector = map[string]*footprint{}, map[string]*footprint{}
	for _, c := range m.contenders {
		if c.baseline {
			continue
		}
		var err error
		m.progress("memory of %s counters of %s", count(m.o.counters), c.name)
		if m.memory[c.name], err = readMemory(ctx, c.name, m.o.counters); err != nil {
			return err
		}
		m.collector[c.name] = m.memory[c.name]
		if m.o.many != m.o.counters {
			m.progress("collector beside %s counters of %s", count(m.o.many), c.name)
			if m.collector[c.name], err = readMemory(ctx, c.name, m.o.many); err != nil {
				return err
			}
		}
		for _, found := range []*footprint{m.memory[c.name], m.collector[c.name]} {
			if found.Evicted > 0 {
				m.note("%s evicted %d of %s counters for want of room.", c.name, found.Evicted, count(found.Counters))
			}
		}
	}
	return nil
}
