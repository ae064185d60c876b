package blocks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// account is what a replica reports of its blocks since its start. It is exact if each request has
// one hit and none is denied.
type account struct {
	acquired, returned, lost int // sluice_store_block_hits_total
	used                     int // sluice_store_charges_total of blocks
	synced                   int // sluice_store_synced_hits_total
	unused                   int // blocks of the state
}

func (a account) add(b account) account {
	return account{a.acquired + b.acquired, a.returned + b.returned, a.lost + b.lost, a.used + b.used, a.synced + b.synced, a.unused + b.unused}
}

// account returns the present account of a replica.
func (f *fleet) account(t *testing.T, replica int) account {
	t.Helper()
	m := suite.Metrics(t, f.sluices[replica].Load())
	hits := func(result string) int {
		return int(m.Sum("sluice_store_block_hits_total", fmt.Sprintf("result=%q", result)))
	}
	var state struct{ Blocks struct{ Unused int } }
	must.OK(t, json.Unmarshal(suite.Get(t, "http://"+f.sluices[replica].Load().Addr("debug")+"/api/v1/state"), &state))
	return account{
		acquired: hits("acquired"), returned: hits("returned"), lost: hits("lost"),
		used:   int(m.Sum("sluice_store_charges_total", `by="block"`)),
		synced: int(m.Sum("sluice_store_synced_hits_total")),
		unused: state.Blocks.Unused,
	}
}

// counter returns the count of the store for a tenant, and the unused hits of each replica, as
// /counters reports them.
func (f *fleet) counter(t *testing.T, tenant int) (count int, unused []int) {
	t.Helper()
	for replica := range f.sluices {
		var page struct {
			Counters []struct {
				Used  int
				Block struct{ Unused, Size int }
			}
		}
		must.OK(t, json.Unmarshal(suite.Get(t, f.counters(replica, "d", "tenant="+f.tenants[tenant].name)), &page))
		one := page.Counters[0]
		if one.Block.Unused > one.Block.Size {
			t.Errorf("a block of %d has %d unused hits", one.Block.Size, one.Block.Unused)
		}
		count, unused = one.Used, append(unused, one.Block.Unused)
	}
	return count, unused
}

// accounts is a fleet whose requests have one hit each and are all admitted.
type accounts struct {
	*fleet

	links   []*link
	windows bool    // all tenants are windows, so the store has a count of all hits
	ended   account // of processes that have ended
	extra   int     // hits in the store that no account explains: of killed processes, less those of resets
}

// snapshot is all accounts, and the counts of the store, at a time at which nothing changes.
type snapshot struct {
	replicas        []account
	sum             account
	store, admitted int
	unused          int // of all counters
}

// unexplained returns the hits in the store that the accounts do not explain. They explain admitted
// and unused hits, those that a replica has lost, and those that it has charged a second time after
// its connection was lost.
func (s snapshot) unexplained() int {
	return s.store - s.admitted - s.unused - s.sum.lost - s.sum.synced
}

// read returns all accounts, and false if one changes meanwhile.
func (a *accounts) read(t *testing.T) (s snapshot, ok bool) {
	t.Helper()
	accounts := func() (all []account) {
		for replica := range a.sluices {
			all = append(all, a.account(t, replica))
		}
		return all
	}
	s.replicas = accounts()
	if a.windows {
		for tenant, l := range a.ledgers {
			count, unused := a.counter(t, tenant)
			admitted, _ := l.total()
			s.store, s.admitted = s.store+count, s.admitted+admitted
			for _, n := range unused {
				s.unused += n
			}
		}
	}
	s.sum = a.ended
	for _, one := range s.replicas {
		s.sum = s.sum.add(one)
	}
	return s, slices.Equal(s.replicas, accounts())
}

// balance waits until the reports agree with each other and with the store. Hits of blocks are used,
// returned, lost or unused. At no time does a replica report more of them than it has acquired, or
// more unused hits than the store has counted in addition to the admitted ones.
func (a *accounts) balance(t *testing.T, event string) {
	t.Helper()
	var last snapshot
	defer func() { t.Logf("after %s: %+v", event, last) }()
	suite.Eventually(t, "the reports agree after "+event, func() bool {
		s, ok := a.read(t)
		if !ok {
			return false
		}
		last = s
		for _, one := range s.replicas {
			used := one.acquired - one.returned - one.lost - one.unused
			if used < one.used {
				t.Errorf("after %s, a replica reports more hits than it has acquired: %+v", event, one)
			}
			ok = ok && used == one.used
		}
		if a.windows && s.unexplained() < a.extra {
			t.Errorf("after %s, the store has counted fewer hits than are reported: %+v", event, s)
		}
		return ok && (!a.windows || s.unexplained() == a.extra && s.unused == s.sum.unused)
	})
}

// settle waits until no replica has unused hits, accepts the hits that the accounts do not explain,
// and returns how many more these are than before.
func (a *accounts) settle(t *testing.T) (more int) {
	t.Helper()
	suite.Eventually(t, "all unused hits are returned", func() bool {
		s, ok := a.read(t)
		more = s.unexplained() - a.extra
		return ok && s.unused == 0 && s.sum.unused == 0
	})
	a.extra += more
	return more
}
