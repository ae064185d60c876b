package load

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

func draw(c *Config, n int) map[uint64]int {
	keys := newKeys(c, rand.New(rand.NewPCG(1, 2)), new(atomic.Uint64))
	seen := map[uint64]int{}
	for range n {
		if key, ok := keys(); ok {
			seen[key]++
		}
	}
	return seen
}

func TestEvenKeysCoverTheirRange(t *testing.T) {
	seen := draw(&Config{Keys: 10}, 10_000)
	if len(seen) != 10 {
		t.Fatalf("drew %d different keys, want 10", len(seen))
	}
	for key, n := range seen {
		if key > 9 || n < 850 || n > 1150 {
			t.Errorf("key %d came %d times in 10000, want about 1000 of 0..9", key, n)
		}
	}
}

func TestZipfKeysFavourTheFirst(t *testing.T) {
	seen := draw(&Config{Keys: 1000, Zipf: 1.2}, 10_000)
	if seen[0] < 5*seen[9] || seen[9] == 0 {
		t.Errorf("key 0 came %d times and key 9 %d times, want the first far more often", seen[0], seen[9])
	}
	for key := range seen {
		if key >= 1000 {
			t.Errorf("drew key %d, want below 1000", key)
		}
	}
}

func TestFillCallsEachKeyOnceInAllWorkers(t *testing.T) {
	c, filled := &Config{Keys: 5, Fill: true}, new(atomic.Uint64)
	a, b := newKeys(c, nil, filled), newKeys(c, nil, filled)
	for want := range uint64(5) {
		next := a
		if want%2 == 1 {
			next = b
		}
		if key, ok := next(); key != want || !ok {
			t.Errorf("key = %d, %v, want %d, true", key, ok, want)
		}
	}
	for _, next := range []keySource{a, b} {
		if key, ok := next(); ok {
			t.Errorf("a sixth key: %d, want none", key)
		}
	}
}
