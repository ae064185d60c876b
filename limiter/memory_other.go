//go:build !linux

package limiter

func mapMemory(uint64) []byte { return nil }

func unmapMemory([]byte) {}

func adviseHuge([]byte) {}

func discardMemory([]byte) {}
