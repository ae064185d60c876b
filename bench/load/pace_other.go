//go:build !linux

package load

import "time"

func wakeOnTime() {}

func sleep(d time.Duration) { time.Sleep(d) }
