package main

import "math"

// keptFiles are open files for all else than gRPC connections: listeners, rules,
// metrics, logs.
const keptFiles = 256

// connectionLimit returns how many connections may be open where the process may
// open that many files: wanted, or as many as leave keptFiles, but half of the
// files in any case.
func connectionLimit(wanted int, files uint64) int {
	room := files / 2
	if files > keptFiles {
		room = max(room, files-keptFiles)
	}
	return int(min(uint64(max(wanted, 0)), room, math.MaxInt32))
}
