package limiter

// SaturatingAdd returns a + b, or the maximum of the type if the sum overflows. Clients choose the
// hits of a request, up to 2^64-1.
func SaturatingAdd[N uint32 | uint64](a, b N) N {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^N(0)
}
