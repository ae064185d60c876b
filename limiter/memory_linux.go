package limiter

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	advHugePage   = 14 // MADV_HUGEPAGE, which package syscall lacks on some ports
	advNoHugePage = 15 // MADV_NOHUGEPAGE
)

// mapMemory returns n bytes beside Go's heap, of which the system gives pages as they are
// used. It returns nil if they are few or the system has no room for them.
func mapMemory(n uint64) []byte {
	if n < mapFrom || n > uint64(MaxBytes) {
		return nil
	}
	// Linux puts what is whole huge pages on their border, and nothing else: the
	// first and last of others would be small pages.
	whole := (int(n) + hugePage - 1) &^ (hugePage - 1)
	b, err := syscall.Mmap(-1, 0, whole, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(b, advNoHugePage) // a system without huge pages has none to avoid
	return b[:n]
}

func unmapMemory(b []byte) {
	_ = syscall.Munmap(b[:cap(b)]) // nothing is left to be done about it
}

// adviseHuge lets the system make huge pages of memory; small ones do as well.
func adviseHuge(b []byte) { _ = syscall.Madvise(pages(b), advHugePage) }

// discardMemory gives memory back. It reads as zeros from then on; if the system refuses,
// it stays resident.
func discardMemory(b []byte) { _ = syscall.Madvise(pages(b), syscall.MADV_DONTNEED) }

// pages returns the whole pages in b.
func pages(b []byte) []byte {
	size := uintptr(os.Getpagesize())
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := -p % size
	if uintptr(len(b)) < skip+size {
		return nil
	}
	return b[skip:][:(uintptr(len(b))-skip)&^(size-1)]
}
