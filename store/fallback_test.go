package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// recorder is an observer that records its calls.
type recorder struct {
	mu       sync.Mutex
	failed   map[redis.Kind]int
	decided  map[string]int
	diverged int
	synced   uint64
	dropped  uint64
}

func (o *recorder) Batch(time.Duration, int) {}

func (o *recorder) Failed(kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = map[redis.Kind]int{}
	}
	o.failed[redis.Kind(kind)]++
}

func (o *recorder) Decided(by string, charges int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.decided == nil {
		o.decided = map[string]int{}
	}
	o.decided[by] += charges
}

func (o *recorder) Synced(hits uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.synced += hits
}

func (o *recorder) Dropped(hits uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped += hits
}

func (o *recorder) Blocks(string, uint64) {}

func (o *recorder) Diverged() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.diverged++
}

// decisions returns the number of charges that the fallback decided, and of those that the store
// decided.
func (o *recorder) decisions() (fallback, store int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided[byFallback], o.decided[byStore]
}

func (o *recorder) failuresOf(kind redis.Kind) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed[kind]
}

func TestFallbacks(t *testing.T) {
	charges := []limiter.Charge{oneHit(1, hugeBucket), oneHit(2, hugeBucket), oneHit(3, hugeBucket)}
	charges[1].Refund, charges[1].Group = true, 1
	charges[2].Mode, charges[2].Group = limiter.Shadow, 2
	for _, tt := range []struct {
		fallback Fallback
		err      error
		denied   bool
		over     []bool
	}{
		{Local, nil, false, []bool{false, false, false}},
		{Error, ErrUnavailable, false, nil},
		{Allow, nil, false, []bool{false, false, false}},
		{Deny, nil, true, []bool{true, false, true}},
	} {
		s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}, Timeout: longTimeout, Fallback: tt.fallback, Table: newTable(t)})
		must.OK(t, err)
		var c caller
		if err := c.decide(s, charges...); !errors.Is(err, tt.err) {
			t.Errorf("%s: decide = %v, want %v", tt.fallback, err, tt.err)
		}
		if c.b.Denied != tt.denied {
			t.Errorf("%s: Denied %v, want %v", tt.fallback, c.b.Denied, tt.denied)
		}
		for i, want := range tt.over {
			if got := c.b.Decisions[i].Over; got != want {
				t.Errorf("%s: charge %d: Over %v, want %v", tt.fallback, i, got, want)
			}
		}
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[redis.ServerError]redis.Kind{
		"BUSY Redis is busy running a script":                                                                                            redis.Busy,
		"NOREPLICAS Not enough good replicas to write.":                                                                                  redis.Replicas,
		"ERR Error running script (call to f_1): @user_script: 1: -NOREPLICAS Not enough":                                                redis.Replicas,
		"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not":                                      redis.Memory,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                              redis.Script,
		"NOPERM this user has no permissions to run the 'eval' command":                                                                  redis.Refused,
		"MOVED 1234 127.0.0.1:7001":                                                                                                      redis.Cluster,
		"UNKNOWNWORD of another":                                                                                                         redis.Script,
		"ERR AUTH <password> called without any password configured for the default user.":                                               redis.Refused,
		"ERR The user executing the script can't run this command or subcommand script: 8e, on":                                          redis.Refused,
		"ERR The user executing the script can't access at least one of the keys mentioned":                                              redis.Refused,
		"ERR Error running script (call to f_a3): @user_script:1: @user_script: 1: The user executing the script can't run this command": redis.Refused,
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script":                                           redis.Refused,
		"ERR Unknown Redis command called from script script: 7a, on @user_script:1.":                                                    redis.Script,
		"ERR DB index is out of range":                                                                                                   redis.Script,
	} {
		if got := redis.KindOf(fmt.Errorf("more: %w", text)); got != want {
			t.Errorf("kindOf(%q) = %q, want %q", text, got, want)
		}
	}
}

// If the fallback also panics, the request fails with an error.
func TestPanicInTheFallback(t *testing.T) {
	panics := 0
	s := &Store{options: Options{Fallback: Local, Panicked: func(any) { panics++ }}}
	err := s.fallBack(1, &limiter.Batch{Charges: []limiter.Charge{{}}, Decisions: nil})
	if !errors.Is(err, redis.ErrPanicked) || panics != 1 {
		t.Errorf("decide = %v after %d panics, want %v and 1", err, panics, redis.ErrPanicked)
	}
}
