package script

import (
	"cmp"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An amount is a duration: seconds, and sixteenths of nanoseconds below one second.
type amount struct{ seconds, parts int64 }

const partsOfSecond = 16 * int64(time.Second)

// amountOf returns a number of ticks, which are sixteenths of nanoseconds if fine is set, otherwise
// nanoseconds.
func amountOf(ticks uint64, fine bool) amount {
	if fine {
		return amount{int64(ticks / uint64(partsOfSecond)), int64(ticks % uint64(partsOfSecond))} //nolint:gosec // below 2^60
	}
	return amount{int64(ticks / uint64(time.Second)), int64(ticks%uint64(time.Second)) * 16} //nolint:gosec // below 2^35
}

// instant returns a time as an amount since 1970.
func instant(t limiter.Time, sixteenths uint8) amount {
	return amount{int64(t) / int64(time.Second), int64(t)%int64(time.Second)*16 + int64(sixteenths)}
}

func (a amount) plus(b amount) amount {
	sum := amount{a.seconds + b.seconds, a.parts + b.parts}
	if sum.parts >= partsOfSecond {
		sum.seconds++
		sum.parts -= partsOfSecond
	}
	return sum
}

// minus returns a less b, at least 0.
func (a amount) minus(b amount) amount {
	if a.compare(b) <= 0 {
		return amount{}
	}
	rest := amount{a.seconds - b.seconds, a.parts - b.parts}
	if rest.parts < 0 {
		rest.seconds--
		rest.parts += partsOfSecond
	}
	return rest
}

func (a amount) compare(b amount) int {
	return cmp.Or(cmp.Compare(a.seconds, b.seconds), cmp.Compare(a.parts, b.parts))
}

// float returns a in seconds, rounded.
func (a amount) float() float64 { return float64(a.seconds) + float64(a.parts)/float64(partsOfSecond) }
