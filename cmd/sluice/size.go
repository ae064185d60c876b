package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a number of bytes, written as 65536, 64KiB, 64Ki, 64MiB or 1GiB.
type byteSize int64

// UnmarshalText reads a size.
func (s *byteSize) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "KMGTiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, ok := map[string]int{
		"": 0, "B": 0,
		"KiB": 10, "Ki": 10, "MiB": 20, "Mi": 20, "GiB": 30, "Gi": 30, "TiB": 40, "Ti": 40,
	}[string(text)[len(digits):]]
	if err != nil || !ok || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size: write 65536, 64KiB, 64MiB or 1GiB", text)
	}
	*s = byteSize(n << shift)
	return nil
}
