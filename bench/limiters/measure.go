package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// batch makes n decisions and returns how many were admitted. It belongs to one
// thread.
type batch func(n int) (admitted int)

// batchSize is how many decisions a thread makes between two looks at the time.
const batchSize = 512

// use is what decisions took.
type use struct {
	decisions, admitted int64
	cpu, wall           time.Duration // of all threads
	mallocs             uint64        // of the whole process
}

// nanos is the CPU time of one decision.
func (u use) nanos() float64 { return float64(u.cpu) / float64(u.decisions) }

// allocs is the number of allocations of one decision.
func (u use) allocs() float64 { return float64(u.mallocs) / float64(u.decisions) }

// share is the share of a core that each thread had.
func (u use) share() float64 { return float64(u.cpu) / float64(u.wall) }

// admittedShare is the share of decisions that admitted.
func (u use) admittedShare() float64 { return float64(u.admitted) / float64(u.decisions) }

// measure has a thread of its own run each batch again and again for at least d,
// all at the same time, or once with n decisions if n is above 0. The time is the
// CPU time of these threads: what else runs on the machine, or in this process,
// does not count, though it may cool the caches.
func measure(batches []batch, d time.Duration, n int) (use, error) {
	var (
		wg    sync.WaitGroup
		ready atomic.Int32
		uses  = make([]use, len(batches))
		errs  = make([]error, len(batches))
	)
	before := mallocs()
	for i, b := range batches {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for ready.Add(1); int(ready.Load()) < len(batches); {
				runtime.Gosched()
			}
			uses[i], errs[i] = loop(b, d, n)
		})
	}
	wg.Wait()
	sum := use{mallocs: mallocs() - before}
	for i, u := range uses {
		if errs[i] != nil {
			return sum, errs[i]
		}
		sum.decisions += u.decisions
		sum.admitted += u.admitted
		sum.cpu += u.cpu
		sum.wall += u.wall
	}
	return sum, nil
}

// loop is measure for one thread, which it is locked to.
func loop(b batch, d time.Duration, n int) (use, error) {
	var u use
	size := batchSize
	if n > 0 {
		size = n
	}
	start := time.Now()
	cpu, err := threadTime()
	if err != nil {
		return u, err
	}
	for {
		u.admitted += int64(b(size))
		u.decisions += int64(size)
		if u.wall = time.Since(start); n > 0 || u.wall >= d {
			break
		}
	}
	end, err := threadTime()
	u.cpu = end - cpu
	return u, err
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
