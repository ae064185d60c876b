package limiter

// SaturatingAdd returns a + b, or the greatest number of the type if the sum is greater. Clients choose how many hits a
// request has, up to 2^64-1.
func SaturatingAdd[N uint32 | uint64](a, b N) N {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^N(0)
}
