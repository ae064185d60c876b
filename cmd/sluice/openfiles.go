package main

import "math"

// keptFiles are open files for all else than gRPC connections: listeners and their
// connections over HTTP, rules, logs.
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

// httpConnectionLimit returns how many connections each HTTP listener may have beside
// so many over gRPC: wanted, or an eighth of the files that are left, so that the
// listeners for HTTP, at most four, take half of them.
func httpConnectionLimit(wanted, grpc int, files uint64) int {
	left := files - min(files, uint64(max(grpc, 0)))
	return int(min(uint64(max(wanted, 0)), max(left/8, 1), math.MaxInt32))
}
