package limiter

import "unsafe"

// CounterBytes returns the memory that one live counter of the policy takes.
func CounterBytes(Policy) int { return int(unsafe.Sizeof(slot{})) }
