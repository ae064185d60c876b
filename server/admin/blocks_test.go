package admin_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// A blockDecider is a store with a block of each counter that is looked up.
type blockDecider struct {
	*limiter.Table

	unused []uint64 // of blocks; nil if blocks are off
}

func (d blockDecider) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, _ limiter.Waiter) (bool, error) {
	d.Table.Decide(now, b)
	return true, nil
}

func (blockDecider) Cancel(limiter.Time, *limiter.Batch, [][]byte) {}

func (blockDecider) Reset(context.Context, limiter.Time, *limiter.Batch, [][]byte, int) (uint64, error) {
	return 0, nil
}

func (blockDecider) Up() bool { return true }

func (blockDecider) Block(limiter.Time, *limiter.Charge) (unused, size uint64) { return 12, 40 }

func (d blockDecider) Blocks(_ limiter.Time, each func(c *limiter.Charge, description any, unused, size uint64)) (hot int, replicas int64, ok bool) {
	for i, unused := range d.unused {
		each(&limiter.Charge{ID: identity.ID{Lo: unused}}, live.CounterName{Rule: strconv.Itoa(i)}, unused, 40)
	}
	return len(d.unused) + 5, 3, d.unused != nil
}

// TestBlockIsExplained looks up a counter of which this replica has a block.
func TestBlockIsExplained(t *testing.T) {
	s := newBlockService(t, live.Hashed, nil)
	addr, _ := debugServer(t, s)
	c := askCounters(t, addr, client.CounterQuery{Descriptor: "window=alice"}).Counters[0]
	if diff := cmp.Diff(&live.BlockState{Unused: 12, Size: 40}, c.Block); diff != "" {
		t.Errorf("block (-want +got):\n%s", diff)
	}
}

func newBlockService(t *testing.T, topKeys string, unused []uint64) *answer.Service {
	t.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	return servertest.Service(t, answer.Settings{Decider: blockDecider{table, unused}, Namer: descriptors.NewNamer("", nil), TopKeys: topKeys}, countersRules)
}

// TestStateOfBlocks checks the totals, the counters with the most unused hits, and the blocks of
// denied keys.
func TestStateOfBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var unused []uint64
	for n := range uint64(100) {
		unused = append(unused, n)
	}
	rng.Shuffle(len(unused), func(i, j int) { unused[i], unused[j] = unused[j], unused[i] })
	for _, mode := range []string{live.Hashed, live.Off} {
		s := newBlockService(t, mode, unused)
		addr, _ := debugServer(t, s)
		servertest.Hit(t, s, "window", "alice", 6, nil)
		state := askState(t, addr, "")
		if b := state.Blocks; b.HotCounters != 105 || b.Unused != 4950 || b.Replicas != 3 || len(b.Largest) != live.MaxBlockCounters {
			t.Fatalf("blocks are %+v", b)
		}
		for i, c := range state.Blocks.Largest {
			want := live.BlockCounter{BlockState: live.BlockState{Unused: uint64(99 - i), Size: 40}}
			want.Rule = strconv.Itoa(slices.Index(unused, want.Unused))
			if mode != live.Off {
				want.Hash = s.Recorder().Hash(identity.ID{Lo: want.Unused})
			}
			if c != want {
				t.Errorf("%s: counter %d is %+v, want %+v", mode, i, c, want)
			}
		}
		if keys := state.Domains[0].DeniedKeys; mode != live.Off && (len(keys) != 1 || *keys[0].Block != live.BlockState{Unused: 12, Size: 40}) {
			t.Errorf("denied keys are %+v", keys)
		}
	}
}

// TestStateWithoutBlocks checks that a state has no blocks if they are off, or the counters in memory.
func TestStateWithoutBlocks(t *testing.T) {
	for name, s := range map[string]*answer.Service{"off": newBlockService(t, live.Hashed, nil), "memory": servertest.Service(t, answer.Settings{}, countersRules)} {
		addr, _ := debugServer(t, s)
		if _, _, body := askHTTP(t, http.MethodGet, "http://"+addr+admin.StatePath); strings.Contains(body, "block") {
			t.Errorf("%s: the state has blocks: %s", name, body)
		}
	}
}
