package identity

import "math/bits"

// polyPrime is the Mersenne prime p, the modulus of the polynomials of long strings.
const polyPrime = 1<<61 - 1

// hashLong is hash for more than nhBytes. The result is the length and a number below 2^61.
func (k *hashKeys) hashLong(s []byte) (a, b sum128) {
	size := uint64(len(s))
	for len(s) > 0 {
		n := min(len(s), nhBytes)
		x, y := k.hash(s[:n])
		a.lo = horner(a.lo, k.point[0], x)
		b.lo = horner(b.lo, k.point[1], y)
		s = s[n:]
	}
	return sum128{size, canonical(a.lo)}, sum128{size, canonical(b.lo)}
}

// horner adds three coefficients of 60, 60 and 8 bits, from x, to the polynomial sum at r. Argument
// and result are below 2^62.
func horner(sum, r uint64, x sum128) uint64 {
	const mask = 1<<60 - 1
	sum = multiply(sum, r) + x.lo&mask
	sum = multiply(sum, r) + (x.lo>>60|x.hi<<4)&mask
	return multiply(sum, r) + x.hi>>56
}

// multiply returns x*y modulo p, below 2^61 + 4, for x and y below 2^62.
func multiply(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	s := lo&polyPrime + (lo>>61 | hi<<3)
	return s&polyPrime + s>>61
}

func canonical(x uint64) uint64 {
	if x = x&polyPrime + x>>61; x >= polyPrime {
		return x - polyPrime
	}
	return x
}
