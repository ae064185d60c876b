package blocks_test

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// state returns the sum of the states of all replicas, as `sluice top` shows it.
func (f *fleet) state(t *testing.T) *live.State {
	t.Helper()
	var addrs []string
	var states []*live.State
	for _, s := range f.sluices {
		debug := &client.Debug{Addr: s.Load().Addr("debug")}
		state, err := debug.State(t.Context(), 100)
		must.OK(t, err)
		addrs, states = append(addrs, debug.Addr), append(states, state)
	}
	return live.Sum(addrs, states)
}

// lookUp returns the blocks of a tenant by a look-up at each replica, the one with the most unused
// hits first.
func (f *fleet) lookUp(t *testing.T, tenant string) (all []live.BlockState) {
	t.Helper()
	for _, s := range f.sluices {
		report, err := (&client.Debug{Addr: s.Load().Addr("debug")}).Counters(t.Context(), client.CounterQuery{Domain: "d", Descriptor: "tenant=" + tenant})
		must.OK(t, err)
		if b := report.Counters[0].Block; b != nil {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, live.CompareBlocks)
	return all
}

// TestBlocksAreReported sends requests one by one, and compares the reported blocks with the store.
// It has counted the admitted hits and the unused ones, except while a block is being charged or
// returned, so the test compares until they agree ten times.
func TestBlocksAreReported(t *testing.T) {
	t.Parallel()
	one := tenant{name: "hour", limit: 1_000_000, window: time.Hour}
	window.AwaitHour(t)
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), []tenant{one}, suite.Patience, patient...)
	agreed := 0
	suite.Eventually(t, "the figures agree ten times", func() bool {
		for range 100 {
			f.request(t.Context(), 0, 0, 1)
			f.request(t.Context(), 1, 0, 1)
		}
		before, own := f.state(t).Blocks, f.lookUp(t, one.name)
		counted := 0
		for key := range strings.FieldsSeq(store.Must("KEYS", "*f3600_*")) {
			counted, _ = strconv.Atoi(store.Must("GET", key))
		}
		after := f.state(t).Blocks
		var listed []live.BlockState
		for _, c := range before.Largest {
			if c.Limit != "1000000/3600second" || c.Hash == "" || c.Replica == "" {
				t.Errorf("a counter is %+v", c)
			}
			listed = append(listed, c.BlockState)
		}
		admitted, _ := f.ledgers[0].total()
		if before.Unused == 0 || before.Unused != after.Unused || before.HotCounters != 2 || before.Replicas != 3 ||
			admitted+int(before.Unused) != counted || len(own) != 2 || !slices.Equal(listed, own) {
			return false
		}
		t.Logf("%d hits admitted and %d unused, %d in the store: %+v", admitted, before.Unused, counted, own)
		agreed++
		return agreed == 10
	})
}

// TestTopShowsBlocks sends more requests than the limit, until `sluice top` shows the blocks of the
// counter, and verifies that it shows none with --store-blocks off.
func TestTopShowsBlocks(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "off"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			store := storetest.Start(t)
			f := startFleet(t, store, direct(store), tenants[:1], suite.Patience, append([]string{"--store-blocks", mode}, patient...)...)
			f.load(t, 2)
			suite.Eventually(t, "a denied key, and blocks unless they are off", func() bool {
				out, err := exec.CommandContext(t.Context(), sluiceBinary, "top", "--once", "--addr", f.sluices[0].Load().Addr("debug")).CombinedOutput()
				must.OK(t, err)
				text := strings.Join(strings.Fields(string(out)), " ")
				if mode == "off" {
					if strings.Contains(strings.ToLower(text), "block") {
						t.Errorf("blocks are off, but top shows\n%s", out)
					}
					return strings.Contains(text, "d: tenant=small 2000/second")
				}
				return strings.Contains(text, "blocks: 1 hot counter,") && strings.Contains(text, "SIZE COUNTER WITH A BLOCK")
			})
		})
	}
}
