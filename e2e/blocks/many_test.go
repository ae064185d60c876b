package blocks_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// shown is a block, as the state and /counters have it.
type shown struct{ Unused, Size int }

// shownBlocks are the blocks in the state of a replica.
type shownBlocks struct {
	hot, unused, replicas int
	sizes                 []shown // of the listed counters, in this order
	listed                map[string]shown
}

// shownBy returns the blocks in the state of a replica.
func (f *fleet) shownBy(t *testing.T, replica int) (b shownBlocks) {
	t.Helper()
	var state struct {
		Blocks struct {
			HotCounters      int `json:"hot_counters"`
			Unused, Replicas int
			Largest          []struct {
				Hash, Limit string
				shown
			}
		}
	}
	must.OK(t, json.Unmarshal(suite.Get(t, "http://"+f.sluices[replica].Load().Addr("debug")+"/api/v1/state"), &state))
	b = shownBlocks{hot: state.Blocks.HotCounters, unused: state.Blocks.Unused, replicas: state.Blocks.Replicas, listed: map[string]shown{}}
	for _, one := range state.Blocks.Largest {
		if one.Limit != "1000000/31536000second" {
			t.Errorf("the limit is %q", one.Limit)
		}
		b.sizes = append(b.sizes, one.shown)
		b.listed[one.Hash] = one.shown
	}
	return b
}

// equal reports whether two states have the same blocks.
func (b shownBlocks) equal(o shownBlocks) bool {
	return b.hot == o.hot && b.unused == o.unused && b.replicas == o.replicas && slices.Equal(b.sizes, o.sizes) && maps.Equal(b.listed, o.listed)
}

// sluice returns the output of a command, with words separated by one space.
func (f *fleet) sluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sluiceBinary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// TestManyBlocks has more counters with blocks than the state lists. The state of each replica has the
// sum of the unused hits that /counters has, and lists the counters with the most. `sluice top` shows
// the sum over the replicas, and explain the block of a counter: not more than before.
func TestManyBlocks(t *testing.T) {
	t.Parallel()
	const listed = 20
	var all []tenant
	for n := range listed + 5 {
		all = append(all, tenant{name: strconv.Itoa(n), limit: 1_000_000, window: year, weight: 1})
	}
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store)[:2], all, suite.Patience, patient...)
	addrs := []string{f.sluices[0].Load().Addr("debug"), f.sluices[1].Load().Addr("debug")}
	for replica := range addrs {
		suite.Eventually(t, "the reports of a replica agree", func() bool {
			for n := range 5 * len(all) {
				which := n % len(all)
				f.request(t.Context(), 0, which, 1+which%3)
				f.request(t.Context(), 1, which, 1+which%2)
			}
			state, blocks := f.shownBy(t, replica), map[string]shown{} // by hash
			for _, one := range all {
				hash, block := f.block(t, replica, one.name)
				blocks[hash] = block
			}
			return state.agrees(blocks, listed) && state.hot == len(all) && state.replicas == len(addrs) && state.equal(f.shownBy(t, replica))
		})
	}

	// Meanwhile replicas may return unused hits, but without requests they get no more.
	counted := regexp.MustCompile(`blocks: \d+ hot counters, (\d+) unused hits`)
	ofBlock := regexp.MustCompile(`(\d+) of a block of \d+ unused`)
	unused := func() (all, seven int) {
		_, block := f.block(t, 1, "7")
		return f.shownBy(t, 0).unused + f.shownBy(t, 1).unused, block.Unused
	}
	suite.Eventually(t, "top and explain agree", func() bool {
		allBefore, sevenBefore := unused()
		top := counted.FindStringSubmatch(f.sluice(t, "top", "--once", "--addr", strings.Join(addrs, ",")))
		explained := ofBlock.FindStringSubmatch(f.sluice(t, "explain", "-d", "d", "--descriptor", "tenant=7", "--addr", addrs[1]))
		all, seven := unused()
		return top != nil && all <= number(t, top[1]) && number(t, top[1]) <= allBefore &&
			(explained == nil && seven == 0 || explained != nil && seven <= number(t, explained[1]) && number(t, explained[1]) <= sevenBefore)
	})
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must.OK(t, err)
	return n
}

// agrees reports whether the state has the sum of the given blocks and lists the largest, some of
// which are used.
func (b shownBlocks) agrees(blocks map[string]shown, most int) bool {
	unused, sizes := 0, slices.Collect(maps.Values(blocks))
	for _, one := range sizes {
		unused += one.Unused
	}
	slices.SortFunc(sizes, func(x, y shown) int { return (y.Unused-x.Unused)*1e6 + y.Size - x.Size })
	used := false
	for hash, one := range b.listed {
		if blocks[hash] != one {
			return false
		}
		used = used || one.Unused < one.Size
	}
	return used && unused == b.unused && len(b.listed) == most && slices.Equal(b.sizes, sizes[:most])
}

// block returns the hash of a tenant's counter, and its block at a replica, by /counters.
func (f *fleet) block(t *testing.T, replica int, tenant string) (hash string, block shown) {
	t.Helper()
	var page struct {
		Counters []struct {
			Key   string
			Block shown
		}
	}
	must.OK(t, json.Unmarshal(suite.Get(t, f.counters(replica, "d", "tenant="+tenant)), &page))
	return page.Counters[0].Key, page.Counters[0].Block
}

// TestBlocksWithoutHashes lists counters with --top-keys off: without hashes and without values.
func TestBlocksWithoutHashes(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	all := []tenant{{name: "alice", limit: 1_000_000, window: year}}
	f := startFleet(t, store, direct(store)[:1], all, suite.Patience, append([]string{"--top-keys", "off"}, patient...)...)
	suite.Eventually(t, "a counter is listed", func() bool {
		for range 50 {
			f.request(t.Context(), 0, 0, 1)
		}
		b := f.shownBy(t, 0)
		if hash := slices.Collect(maps.Keys(b.listed)); len(hash) > 0 && hash[0] != "" {
			t.Fatalf("the hashes %q are shown", hash)
		}
		return b.unused > 0
	})
	var state struct{ Blocks json.RawMessage }
	must.OK(t, json.Unmarshal(suite.Get(t, "http://"+f.sluices[0].Load().Addr("debug")+"/api/v1/state"), &state))
	if strings.Contains(string(state.Blocks), `"descriptor"`) { // the rule has the value in its configuration
		t.Errorf("the blocks have a descriptor: %s", state.Blocks)
	}
}
