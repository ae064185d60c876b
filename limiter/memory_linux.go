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

// mapMemory returns n bytes outside of Go's heap, or nil if n is small or the system has no address
// space. Pages are allocated as they are used.
func mapMemory(n uint64) []byte {
	if n < mapFrom || n > uint64(MaxBytes) {
		return nil
	}
	// Linux aligns a mapping to huge pages only if its size is a multiple of them; otherwise the
	// first and last pages would be small.
	whole := (int(n) + hugePage - 1) &^ (hugePage - 1)
	b, err := syscall.Mmap(-1, 0, whole, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(b, advNoHugePage) // fails on systems without huge pages
	return b[:n]
}

func unmapMemory(b []byte) {
	_ = syscall.Munmap(b[:cap(b)]) // cannot be handled
}

// adviseHuge lets the system use huge pages for b. Errors are harmless.
func adviseHuge(b []byte) { _ = syscall.Madvise(pages(b), advHugePage) }

// discardMemory returns memory to the system; it reads as zeros afterwards. On error it stays
// resident.
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
