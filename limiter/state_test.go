package limiter_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestAdvanceTAT advances a TAT of 10 and 5/16 ns.
func TestAdvanceTAT(t *testing.T) {
	for to, want := range map[limiter.Time]limiter.State{
		9:  {Time: 10, Sixteenths: 5},
		10: {Time: 10, Sixteenths: 5},
		11: {Time: 11},
	} {
		got := limiter.State{Time: 10, Sixteenths: 5}
		if got.AdvanceTAT(to); got.Time != want.Time || got.Sixteenths != want.Sixteenths {
			t.Errorf("to %d: %+v, want %+v", to, got, want)
		}
	}
}

// PutOn undoes TakeOff.
func TestStatePutOn(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]limiter.Policy{
		"fixed window":   {Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Second},
		"sliding window": {Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Second, SubWindows: 10},
		"bucket":         {Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second},
		"fine bucket":    {Algorithm: limiter.LeakyBucket, Limit: 7_000_000, Slack: 1000, Window: time.Second},
	} {
		for hits := range uint64(200) {
			s := limiter.State{Hits: 500, Time: limiter.Time(time.Hour), Counts: []uint32{400, 100}}
			if p.Algorithm == limiter.LeakyBucket {
				s.Sixteenths = uint8(hits % 16)
			}
			want := s
			want.Counts = slices.Clone(s.Counts)
			s.TakeOff(&p, hits)
			if hits > 0 && reflect.DeepEqual(s, want) {
				t.Errorf("%s: %d hits were not taken off", name, hits)
			}
			if s.PutOn(&p, hits); !reflect.DeepEqual(s, want) {
				t.Errorf("%s, %d hits: %+v, want %+v", name, hits, s, want)
			}
		}
	}
}
