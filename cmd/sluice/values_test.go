package main

import (
	"io/fs"
	"math"
	"testing"
)

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "65536": 65536, "7B": 7,
		"64KiB": 64 << 10, "64Ki": 64 << 10,
		"64MiB": 64 << 20, "64Mi": 64 << 20,
		"2GiB": 2 << 30, "2Gi": 2 << 30,
		"1TiB": 1 << 40, "1Ti": 1 << 40,
		"9223372036854775807": math.MaxInt64,
		"8388607TiB":          8388607 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("size %q = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "B", "MiB", "-1", "-1MiB", "1.5MiB", "64 MiB", " 64MiB", "64mib", "64M", "64MB", "64KiBKiB", "12Q", "0x10",
		"9223372036854775808", "8388608TiB", "9223372036854775807KiB",
	} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("size %q = %d, want an error", text, got)
		}
	}
}

func TestFileMode(t *testing.T) {
	for text, want := range map[string]fs.FileMode{"0660": 0o660, "660": 0o660, "0600": 0o600, "0666": 0o666, "0622": 0o622} {
		if got, err := parseMode(text); err != nil || got != want {
			t.Errorf("mode %q = %#o, %v, want %#o", text, got, err, want)
		}
	}
	// 432 is 0660 in decimal digits.
	for _, text := range []string{"", "0", "0066", "0460", "432", "0777", "01660", "0o660", "-0660", "rw-rw----", "99999999999999999999"} {
		if got, err := parseMode(text); err == nil {
			t.Errorf("mode %q = %#o, want an error", text, got)
		}
	}
}

func TestRatio(t *testing.T) {
	for text, want := range map[string]float32{"0": 0, "1": 1, "0.8": 0.8, "8e-1": 0.8, ".5": 0.5} {
		if got, err := parseRatio(text); err != nil || float32(got) != want {
			t.Errorf("ratio %q = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-0.1", "1.0001", "NaN", "Inf", "80%", "0,8"} {
		if got, err := parseRatio(text); err == nil {
			t.Errorf("ratio %q = %v, want an error", text, got)
		}
	}
}
