// Package process adapts the process to its environment: the memory of the container and the limit
// on open files.
//
// Counters are outside the Go heap, so GOMEMLIMIT is nine tenths of the container's limit minus the
// memory of the counters. GOGC is 400, because the live heap is a few megabytes. If it is larger,
// for example with thousands of connections, it grows between collections by at most 16 MiB, or by
// half.
package process
