package process

import (
	"math"
	"testing"
)

func TestConnectionLimit(t *testing.T) {
	for _, tt := range []struct {
		wanted int
		files  uint64
		want   int
	}{
		{10_000, 20_000, 10_000},
		{10_000, 10_256, 10_000},
		{10_000, 10_255, 9_999},
		{10_000, 1024, 768},
		{10_000, 512, 256},
		{10_000, 511, 255},
		{10_000, 300, 150},
		{10_000, 64, 32},
		{10, 64, 10},
		{10_000, math.MaxUint64, 10_000},
		{1 << 20, math.MaxUint64, 1 << 20},
	} {
		if got := connectionLimit(tt.wanted, tt.files); got != tt.want {
			t.Errorf("connectionLimit(%d, %d) = %d, want %d", tt.wanted, tt.files, got, tt.want)
		}
	}
}

func TestHTTPConnectionLimit(t *testing.T) {
	for _, tt := range []struct {
		wanted, grpc int
		files        uint64
		want         int
	}{
		{1000, 10_000, 20_000, 1000},
		{1000, 10_000, 18_000, 1000},
		{1000, 10_000, 17_999, 999},
		{1000, 768, 1024, 32},
		{1000, 32, 64, 4},
		{1000, 10, 10, 1},
		{5, 768, 1024, 5},
		{1000, 10_000, math.MaxUint64, 1000},
	} {
		if got := httpConnectionLimit(tt.wanted, tt.grpc, tt.files); got != tt.want {
			t.Errorf("httpConnectionLimit(%d, %d, %d) = %d, want %d", tt.wanted, tt.grpc, tt.files, got, tt.want)
		}
	}
}
