package limiter

import "syscall"

const (
	advHugePage = 14 // MADV_HUGEPAGE, which package syscall lacks on some ports
	hugePage    = 2 << 20
)

// mapMemory returns n bytes beside Go's heap, or nil if they are few or the system
// gives none.
func mapMemory(n int64) []byte {
	if n < mapFrom || n != int64(int(n)) {
		return nil
	}
	// Linux puts what is whole huge pages on their border, and nothing else: the
	// first and last of others would be small pages.
	whole := (int(n) + hugePage - 1) &^ (hugePage - 1)
	b, err := syscall.Mmap(-1, 0, whole, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(b, advHugePage) // small pages do as well
	return b[:n]
}

func unmapMemory(b []byte) {
	_ = syscall.Munmap(b[:cap(b)]) // nothing is left to be done about it
}
