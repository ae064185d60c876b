package leases

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestReviews checks which leases the active rules revoke, by their origins. Package answer tests
// the same with reloads.
func TestReviews(t *testing.T) {
	for name, test := range map[string]struct {
		rules string
		stays bool
	}{
		"the same":          {tenPermits, true},
		"another number":    {strings.Replace(tenPermits, "10", "20", 1), true},
		"no limit":          {noLimit, false},
		"another name":      {strings.Replace(tenPermits, "streams", "other", 1), false},
		"another window":    {strings.Replace(tenPermits, "hour", "day", 1), false},
		"another algorithm": {strings.Replace(tenPermits, "concurrency", "sliding_log", 1), false},
		"another key":       {strings.Replace(tenPermits, "key: k", "key: l", 1), false},
	} {
		for method, review := range map[string]func(c *clients){
			"all":  func(c *clients) { c.Review(true) },
			"call": func(c *clients) { c.ReviewCall(func(yield func(Key) bool) { yield(c.last) }) },
		} {
			t.Run(name+" "+method, func(t *testing.T) {
				c := newClients(t, tenPermits, func(o *Options) { o.Shared = true })
				reserved, err := c.table.Partitions(1, map[string]int64{"d": 100})
				if err != nil {
					t.Fatal(err)
				}
				partition := reserved["d"]
				plan := c.options.Plan
				c.options.Plan = func(p *descriptors.Plan, r *descriptors.Request) *limiter.Partition {
					plan(p, r)
					return partition
				}
				c.call(nil, 0)
				c.serve(test.rules)
				c.Review(false) // the lease's limit has no table
				if l := c.leases[c.last]; l == nil || l.Partition != nil {
					t.Fatalf("the lease was reviewed: %+v", l)
				}
				review(c)
				l := c.leases[c.last]
				if l != nil != test.stays {
					t.Fatalf("the lease stays: %v, want %v", l != nil, test.stays)
				}
				if !test.stays {
					return
				}
				if want := c.rules.Load().Limits[0].Policy.Limit; l.policy.Limit != want || l.Partition != partition {
					t.Errorf("the lease has the limit %d and the partition %p, want %d and %p", l.policy.Limit, l.Partition, want, partition)
				}
			})
		}
	}
}

// TestAnotherPartitionEndsLeases reviews a lease whose domain has got another partition. In memory,
// the lease is released where its counter is. A shared counter stays.
func TestAnotherPartitionEndsLeases(t *testing.T) {
	shared := newClients(t, strings.Replace(tenPermits, "algorithm: concurrency", "algorithm: concurrency, counter: c", 1), nil)
	c := newClients(t, tenPermits, nil)
	reserved, err := c.table.Partitions(1, map[string]int64{"d": 100})
	if err != nil {
		t.Fatal(err)
	}
	plan := c.options.Plan
	c.options.Plan = func(p *descriptors.Plan, r *descriptors.Request) *limiter.Partition {
		plan(p, r)
		return reserved["d"]
	}
	c.call(nil, 0)
	live := liveCounters(c.table, c.options.Now())
	c.Review(true)
	left := liveCounters(c.table, c.options.Now())
	if c.leases[c.last] != nil || live != 1 || left != 0 {
		t.Errorf("lease %+v; %d counters were live, and %d are", c.leases[c.last], live, left)
	}
	shared.call(nil, 0)
	shared.leases[shared.last].Partition = reserved["d"]
	if shared.Review(true); shared.leases[shared.last] == nil {
		t.Error("the lease of a shared counter ended")
	}
}

// TestOriginsAreRead decodes encoded origins.
func TestOriginsAreRead(t *testing.T) {
	entries := []descriptors.Entry{{Key: []byte("k"), Value: []byte(strings.Repeat("v", 300))}, {Key: []byte("empty")}}
	for _, d := range []descriptors.Descriptor{
		{Entries: entries},
		{Entries: entries[1:], HasOverride: true, Override: descriptors.Override{RequestsPerUnit: 1 << 31, Unit: -3, UnitMultiplier: 7}},
		{},
	} {
		var r descriptors.Request
		for range 2 { // the second time into the same memory
			limit := readOrigin(appendOrigin(nil, &Origin{"limit", []byte("domain"), &d}), &r)
			got := r.Descriptors[0]
			same := len(got.Entries) == len(d.Entries) && got.HasOverride == d.HasOverride && got.Override == d.Override
			for i := range d.Entries {
				same = same && string(got.Entries[i].Key) == string(d.Entries[i].Key) && string(got.Entries[i].Value) == string(d.Entries[i].Value)
			}
			if string(limit) != "limit" || string(r.Domain) != "domain" || !same {
				t.Errorf("read %q, %+v, want %+v", limit, r, d)
			}
		}
	}
}

// TestOriginsAreBounded grants leases whose origins exceed the bound.
func TestOriginsAreBounded(t *testing.T) {
	c := newClients(t, tenPermits, nil)
	long := descriptors.Descriptor{Entries: []descriptors.Entry{{Key: []byte("k"), Value: []byte(strings.Repeat("x", maxOriginBytes/20))}}}
	for n := range uint64(30) {
		c.Grant(1, &Lease{Key: Key{Number: n}, Counters: c.counters, Expires: 1 << 61}, &limiter.Policy{}, &Origin{"limit", []byte("d"), &long})
	}
	sum := 0
	for _, l := range c.leases {
		sum += len(l.origin)
	}
	if sum > maxOriginBytes || sum < maxOriginBytes*9/10 || c.originBytes != sum {
		t.Errorf("30 leases have origins of %d bytes, and originBytes is %d; want at most %d", sum, c.originBytes, maxOriginBytes)
	}
	c.serve(noLimit)
	c.Review(true)
	if n := len(c.leases); n == 0 || n == 30 {
		t.Errorf("%d leases stay, want those without an origin", n)
	}
	c.mu.Lock()
	c.expireLocked(1 << 62)
	c.mu.Unlock()
	for _, l := range c.spare {
		if cap(l.origin) > maxSpareOrigin {
			t.Fatal("the memory of a long origin is retained")
		}
	}
	c.wantEmpty()
}

func liveCounters(table *limiter.Table, now limiter.Time) (n int64) {
	for _, c := range table.Classes(now) {
		n += c.Live
	}
	return n
}
