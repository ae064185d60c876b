package limiter

import (
	"math"
	"testing"
)

func TestSaturatingAdd(t *testing.T) {
	for _, tt := range []struct{ a, b, want uint64 }{
		{0, 0, 0},
		{1, 2, 3},
		{math.MaxUint64, 0, math.MaxUint64},
		{math.MaxUint64 - 1, 1, math.MaxUint64},
		{math.MaxUint64, 1, math.MaxUint64},
		{5, math.MaxUint64, math.MaxUint64},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64},
	} {
		if got := SaturatingAdd(tt.a, tt.b); got != tt.want {
			t.Errorf("%d + %d = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
	if got := SaturatingAdd[uint32](3_000_000_000, 3_000_000_000); got != math.MaxUint32 {
		t.Errorf("3,000,000,000 + 3,000,000,000 = %d in 32 bits", got)
	}
}
