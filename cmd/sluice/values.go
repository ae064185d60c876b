package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
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

// ratio is a number from 0 to 1.
type ratio float32

// UnmarshalText reads a ratio.
func (r *ratio) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 32)
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	*r = ratio(f)
	return nil
}

// boolean reads a flag without a value as true, and a value as
// envoyproxy/ratelimit does its variables, by strconv.ParseBool: Kong's own
// reader knows neither t nor f.
type boolean struct{}

// Decode reads a boolean.
func (boolean) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	on := true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text := ctx.Scan.Pop().String()
		var err error
		if on, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	}
	target.SetBool(on)
	return nil
}

// IsBool says that no value need follow.
func (boolean) IsBool() bool { return true }

// duration reads a time, with a hint how to write one.
func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a time: write 500ms, 30s, 10m or 24h", text)
	}
	target.SetInt(int64(d))
	return nil
}
