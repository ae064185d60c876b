package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// ranged is a mapper for integers, sizes and durations. It enforces the range tag of the flag.
type ranged func(text string) (int64, error)

// Decode implements [kong.Mapper]. The range of a flag of an unsigned type excludes negative
// numbers.
func (parse ranged) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("a", &text); err != nil {
		return err
	}
	n, err := parse(text)
	if err != nil {
		return err
	}
	if low, high, ok := strings.Cut(ctx.Value.Tag.Get("range"), ".."); ok {
		minimum, err1 := parse(low)
		maximum, err2 := parse(high)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if n < minimum || n > maximum {
			return fmt.Errorf("%q is out of range: must be %s to %s", text, low, high)
		}
	}
	if target.CanUint() {
		target.SetUint(uint64(n))
	} else {
		target.SetInt(n)
	}
	return nil
}

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

// parseSize parses a number of bytes, such as 65536, 64KiB, 64Ki, 64MiB or 1GiB.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, ok := map[string]int{
		"": 0, "B": 0,
		"KiB": 10, "Ki": 10, "MiB": 20, "Mi": 20, "GiB": 30, "Gi": 30, "TiB": 40, "Ti": 40,
	}[text[len(digits):]]
	if err != nil || !ok || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size: write 65536, 64KiB, 64MiB or 1GiB", text)
	}
	return n << shift, nil
}

func parseDuration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write 500ms, 30s, 10m or 24h", text)
	}
	return int64(d), nil
}

// parsed returns a mapper for values that parse reads.
func parsed[T any](parse func(text string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("a", &text); err != nil {
			return err
		}
		value, err := parse(text)
		if err == nil {
			target.Set(reflect.ValueOf(value).Convert(target.Type()))
		}
		return err
	}
}

// parseAddress parses a listen address; "" means none.
func parseAddress(text string) (string, error) {
	if text != "" && !strings.HasPrefix(text, "unix:") {
		_, port, err := net.SplitHostPort(text)
		if err != nil || !isPort(port) {
			return "", fmt.Errorf("%q is not an address: write host:port, unix:///path or unix:@name", text)
		}
	}
	return text, nil
}

// parseMode parses the octal mode of a socket file. It rejects modes that deny access to sluice
// itself, which usually come from decimal digits.
func parseMode(text string) (fs.FileMode, error) {
	const own, all = 0o600, 0o666
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n&own != own || n&^all != 0 {
		return 0, fmt.Errorf("%q is not the mode of a socket: write octal digits from 0600 to 0666, such as 0660", text)
	}
	return fs.FileMode(n), nil
}

// isPort reports whether text is a port: 0 to 65535, or the name of a service.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	if errors.Is(err, strconv.ErrSyntax) {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", text)
		return text != "" && err == nil
	}
	return err == nil && n <= math.MaxUint16
}

// parseHeader parses the name of a header; "" means none.
func parseHeader(text string) (string, error) {
	if text != "" && !telemetry.IsHeaderName(text) {
		return "", fmt.Errorf("%q is not the name of a header: must be a token of RFC 9110, or empty to omit the header", text)
	}
	return text, nil
}

// parseSoftHeader parses the name of a header that is added to forwarded requests and responses; ""
// means none.
func parseSoftHeader(text string) (string, error) {
	if text != "" && rules.IsReservedHeader(text) {
		return "", fmt.Errorf("%q cannot be the name of the header: must be a token of RFC 9110 that HTTP, gRPC and Envoy do not use, such as x-ratelimit-soft", text)
	}
	return text, nil
}

// parseNonEmpty rejects an empty value, which usually comes from an unset shell variable.
func parseNonEmpty(text string) (string, error) {
	if text == "" {
		return "", errors.New("must not be empty: omit the flag instead")
	}
	return text, nil
}

func parsePath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") {
		return "", fmt.Errorf("%q is not a path: must begin with /", text)
	}
	return text, nil
}

func parseRatio(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 32)
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	return f, nil
}
