// Package process fits the process into what its surroundings give it: the container's
// memory and the files that it may open.
//
// The counters are outside the Go heap. So GOMEMLIMIT is nine tenths of the container's limit less the memory of the
// counters, and GOGC is 400: only a few megabytes live in the heap. With more live memory, such as with thousands of
// connections, the heap grows between collections by 16 MiB at most, or by half.
package process
