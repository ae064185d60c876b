package limiter

import "time"

// An instant is a [Time] split into whole seconds, rounded down, and the rest.
type instant struct {
	sec, nano int64
}

func instantOf(t Time) instant {
	sec := int64(t) / int64(time.Second)
	nano := int64(t) - sec*int64(time.Second)
	if nano < 0 {
		sec, nano = sec-1, nano+int64(time.Second)
	}
	return instant{sec: sec, nano: nano}
}

func (i instant) before(j instant) bool {
	return i.sec < j.sec || i.sec == j.sec && i.nano < j.nano
}

// until returns the time from i to the whole second end.
func (i instant) until(end int64) time.Duration {
	return time.Duration(end-i.sec)*time.Second - time.Duration(i.nano)
}

// time is the inverse of instantOf.
func (i instant) time() Time {
	return Time(i.sec*int64(time.Second) + i.nano)
}
