package limiter

import "syscall"

const advHugePage = 14 // MADV_HUGEPAGE, which package syscall lacks on some ports

// mapMemory returns n bytes beside Go's heap, or nil if they are few or the system
// gives none.
func mapMemory(n int64) []byte {
	if n < mapFrom || n != int64(int(n)) {
		return nil
	}
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(b, advHugePage) // small pages do as well
	return b
}

func unmapMemory(b []byte) {
	_ = syscall.Munmap(b) // nothing is left to be done about it
}
