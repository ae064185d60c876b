package program

import (
	"slices"
	"testing"
)

func TestNumbers(t *testing.T) {
	if got, err := Numbers("100,400"); err != nil || !slices.Equal(got, []int{100, 400}) {
		t.Errorf("Numbers(100,400) = %v, %v", got, err)
	}
	for _, bad := range []string{"", "100,", "0", "-1", "off"} {
		if got, err := Numbers(bad); err == nil {
			t.Errorf("Numbers(%q) = %v, want an error", bad, got)
		}
	}
}
