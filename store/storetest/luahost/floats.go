package luahost

import (
	"math"
	"strconv"
	"strings"
)

// formatFloat formats a score, or a number of Lua, as servers do.
func formatFloat(f float64) string {
	switch {
	case f == math.Trunc(f) && math.Abs(f) <= 1<<62:
		return strconv.FormatInt(int64(f), 10)
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f < 0:
		return "-" + formatFloat(-f)
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	digits = strings.Replace(digits, ".", "", 1)
	e, _ := strconv.Atoi(exponent)
	switch zeros := e - len(digits) + 1; {
	case zeros >= 0 && e < len(digits)+7:
		return digits + strings.Repeat("0", zeros)
	case zeros < 0 && e < 0 && (zeros > -7 || e > -4):
		return "0." + strings.Repeat("0", -e-1) + digits
	case zeros < 0 && e >= 0 && (zeros > -7 || e < 4):
		return digits[:e+1] + "." + digits[e+1:]
	}
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return digits + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}
