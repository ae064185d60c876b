//go:build !linux

package limiter

func mapMemory(int64) []byte { return nil }

func unmapMemory([]byte) {}
