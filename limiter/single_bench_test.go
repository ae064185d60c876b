package limiter

import (
	"testing"
	"time"
)

// BenchmarkSingle decides on one counter in hand, the time given.
func BenchmarkSingle(b *testing.B) {
	for _, a := range benchAlgorithms() {
		for _, op := range []struct {
			name string
			p    *Policy
			pace Time
		}{{"allow", &a.admit, Time(time.Millisecond)}, {"deny", &a.deny, 0}} {
			b.Run("alg="+a.name+"/op="+op.name, func(b *testing.B) {
				s, err := NewSingle(*op.p)
				if err != nil {
					b.Fatal(err)
				}
				now, d := benchNow, Decision{}
				s.Decide(now, 1, &d)
				b.ReportAllocs()
				for b.Loop() {
					now += op.pace
					s.Decide(now, 1, &d)
				}
			})
		}
	}
}
