package admin

import (
	"testing"
	"time"
)

// TestWait plays requests and calls at the ends of their streams, one second after another.
func TestWait(t *testing.T) {
	const never = -1
	type step struct{ requests, received, seconds uint64 } // per second
	for name, tt := range map[string]struct {
		steps []step
		begin int // second of the first problem, from 1
		end   bool
	}{
		"no call at all":                        {[]step{{5, 0, 100}}, 3, false},
		"few requests":                          {[]step{{1, 0, 9}}, never, true},
		"each request has a call":               {[]step{{50, 50, 1000}}, never, true},
		"long streams after the start":          {[]step{{20, 0, 60}, {20, 20, 100}}, 3, true},
		"long streams after a pause":            {[]step{{20, 20, 100}, {0, 0, 3000}, {20, 0, 50}, {20, 20, 100}}, never, true},
		"the calls stop":                        {[]step{{1, 1, 100}, {1, 0, 600}}, 161, false},
		"the calls stop and come back":          {[]step{{1, 1, 100}, {1, 0, 600}, {1, 1, 1}}, 161, true},
		"one of 200 fails":                      {[]step{{1, 0, 8}, {1, 1, 1}, {1, 0, 200}, {1, 1, 1}, {1, 0, 200}, {1, 1, 1}, {1, 0, 200}, {1, 1, 1}}, 99, true},
		"the requests stop":                     {[]step{{5, 0, 100}, {0, 0, 700}}, 3, true},
		"the requests stop for a short time":    {[]step{{5, 0, 100}, {0, 0, 300}}, 3, false},
		"the requests stop and a few more come": {[]step{{5, 0, 100}, {0, 0, 700}, {1, 0, 5}}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wait{}
			now, second, begin := time.Unix(1_700_000_000, 0), 0, never
			for _, s := range tt.steps {
				for range s.seconds {
					second++
					now = now.Add(time.Second)
					w.advance(now, s.received, s.requests, s.requests)
					if w.missing(now, minCosts) > 0 && begin == never {
						begin = second
					}
				}
			}
			if end := w.missing(now, minCosts) == 0; begin != tt.begin || end != tt.end {
				t.Errorf("the problem begins in second %d and has ended: %t; want %d, %t", begin, end, tt.begin, tt.end)
			}
		})
	}
}

// TestWaitForLeases plays ten requests per second whose leases show when their streams end.
func TestWaitForLeases(t *testing.T) {
	type step struct{ received, ended, seconds uint64 } // per second
	for name, tt := range map[string]struct {
		steps []step
		begin int // second of the first problem, from 1; 0 if there is none
	}{
		"short streams without a cost":         {[]step{{0, 10, 100}}, 3},
		"long streams with a cost":             {[]step{{0, 0, 50}, {10, 10, 100}}, 0},
		"long streams without a cost":          {[]step{{0, 0, 50}, {0, 10, 100}}, 51},
		"few of the ended streams had no cost": {[]step{{0, 0, 50}, {0, 1, 9}, {10, 10, 100}}, 0},
		"leases that never end":                {[]step{{0, 0, 100}}, 61},
	} {
		now, second, begin, w := time.Unix(1_700_000_000, 0), 0, 0, &wait{}
		w.advance(now, 0, 0, 1000)
		for _, s := range tt.steps {
			for range s.seconds {
				second++
				now = now.Add(time.Second)
				w.advance(now, s.received, 10, s.ended)
				if w.missing(now, minCosts) > 0 && begin == 0 {
					begin = second
				}
			}
		}
		if begin != tt.begin {
			t.Errorf("%s: the problem begins in second %d, want %d", name, begin, tt.begin)
		}
	}
}

// TestWaitAfterClockSetBack checks that a problem is reported again soon after the clock was set
// back by an hour.
func TestWaitAfterClockSetBack(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := &wait{}
	for i := range uint64(100) {
		if i == 50 {
			now = now.Add(-time.Hour)
		}
		now = now.Add(time.Second)
		w.advance(now, 0, 10, 10)
		if i == 40 || i == 53 {
			if n := w.missing(now, minCosts); n != 10*(i+1) {
				t.Errorf("%d requests miss a call in second %d, want all %d", n, i, 10*(i+1))
			}
		}
	}
}
