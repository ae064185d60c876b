package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

const (
	// refreshInterval is how often the primaries are queried. After errors they are queried sooner,
	// but at least minRefreshGap after the last time.
	refreshInterval = time.Second
	minRefreshGap   = 20 * time.Millisecond
)

// run runs the shards until ctx ends, and returns when all goroutines have ended.
func (f *backend) run(ctx context.Context) {
	defer func() {
		f.running.Wait()
		if f.watch != nil {
			f.watch.Close()
		}
	}()
	f.mu.Lock()
	f.start = func(sh *shard) context.CancelFunc {
		ctx, end := context.WithCancel(ctx)
		f.running.Go(func() { sh.run(ctx) })
		return end
	}
	for _, s := range f.slots.Load().ranges {
		f.shards[s.shard.name] = &runningShard{s.shard, f.start(s.shard)}
	}
	f.mu.Unlock()
	switch {
	case f.server.Nodes != nil:
		c := &cluster{backend: f}
		defer c.close()
		f.pollTopology(ctx, c.refresh)
	case f.watch != nil:
		f.pollTopology(ctx, func(ctx context.Context) {
			address, err := f.watch.Primary(ctx)
			if err != nil {
				f.options.observe().Failed(string(redis.KindOf(err)))
				return
			}
			f.shardOf(0).disconnectUnlessAt(address) // a replaced primary may still answer
		})
	default:
		<-ctx.Done()
	}
	f.mu.Lock()
	f.start = nil
	f.mu.Unlock()
}

// pollTopology calls refresh each refreshInterval, and after requestRefresh.
func (f *backend) pollTopology(ctx context.Context, refresh func(context.Context)) {
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		f.options.guard(func() { refresh(ctx) })
		gap.Reset(minRefreshGap)
		select {
		case <-ctx.Done():
			return
		case <-gap.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.refresh:
		}
	}
}

// A cluster queries nodes for the primaries of its backend's slots. One goroutine uses it.
type cluster struct {
	backend *backend
	client  *redis.Conn // nil if not connected
	turn    int         // index of the node of the URL that was queried first, if all shards were unavailable
	failure redis.Kind  // why the last refresh failed; empty if it succeeded
	since   time.Time   // when the first of the current failures happened
}

// refresh queries one node after another until one answers, and applies the answer.
func (c *cluster) refresh(ctx context.Context) {
	var errs []error
	for _, address := range c.candidates() {
		all, err := c.queryNode(ctx, address)
		if err == nil {
			c.backend.applyTopology(all)
			if c.failure != "" {
				c.backend.options.Log.recovered(c.name(), clock().Sub(c.since), Synced{})
			}
			c.failure = ""
			return
		}
		if ctx.Err() != nil {
			return
		}
		errs = append(errs, err)
	}
	why := redis.Joined(errs)
	c.backend.options.observe().Failed(string(why.Kind))
	if c.failure == "" {
		c.since = clock()
	}
	if c.failure != why.Kind {
		c.backend.logUnavailable(c.name(), why)
	}
	c.failure = why.Kind
}

// name is the name of the cluster in the log. It differs from the names of its shards, because the
// URL may name a single node.
func (c *cluster) name() string { return "cluster of " + c.backend.server.String() }

// maxDown bounds how many nodes with unavailable shards are queried, besides those in the URL: each
// may take as long as a connection, and a malicious node may have named them.
const maxDown = 8

// candidates returns the addresses of the nodes to query, in order. If a shard is unavailable, the
// map may come from a node that was cut off and does not know that a primary was replaced. Then the
// nodes of available shards come first, since such a node accepts no writes. If there is none, the
// nodes of the URL take turns.
func (c *cluster) candidates() (all []string) {
	var up, down []string
	c.backend.mu.Lock()
	for address, b := range c.backend.shards {
		if b.shard.isUp() {
			up = append(up, address)
		} else {
			down = append(down, address)
		}
	}
	c.backend.mu.Unlock()
	if c.client != nil && (len(down) == 0 || slices.Contains(up, c.client.Address)) {
		all = append(all, c.client.Address)
	}
	nodes := c.backend.server.Nodes
	if len(up) == 0 && len(down) > 0 {
		c.turn = (c.turn + 1) % len(nodes)
		nodes = slices.Concat(nodes[c.turn:], nodes[:c.turn])
	}
	down = down[:min(len(down), maxDown)]
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(all, up, nodes, down), func(address string) bool {
		known := seen[address]
		seen[address] = true
		return known
	})
}

// queryNode queries the node at an address.
func (c *cluster) queryNode(ctx context.Context, address string) (all []redis.NodeSlots, err error) {
	if c.client != nil && c.client.Address != address {
		c.close()
	}
	if c.client == nil {
		if c.client, err = redis.Dial(ctx, c.backend.server.At(address), c.backend.timeout); err != nil {
			c.client = nil
			return nil, err
		}
	}
	if all, err = c.client.Slots(ctx); err == nil && len(all) == 0 {
		err = errors.New("CLUSTERDOWN no node has slots")
	}
	if err != nil {
		c.close()
	}
	return all, err
}

func (c *cluster) close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// applyTopology replaces the map of slots, starts shards of new primaries, and stops those of
// replaced ones.
func (f *backend) applyTopology(all []redis.NodeSlots) {
	slices.SortFunc(all, func(a, b redis.NodeSlots) int { return cmp.Compare(a.First, b.First) })
	ranges := make([]slotRange, len(all))
	wanted := map[*shard]bool{}
	for i, s := range all {
		if ranges[i] = (slotRange{s, f.shardAt(s.Primary)}); ranges[i].shard == nil {
			return
		}
		wanted[ranges[i].shard] = true
	}
	if !slices.Equal(ranges, f.slots.Load().ranges) {
		f.slots.Store(&slotMap{ranges})
		f.useFirstShardClock()
		f.store.notifyReached()
		for sh := range wanted { // unsynced hits follow their slots
			sh.requestSync()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for address, b := range f.shards {
		// A node that is importing its first slot is known by redirections alone.
		if used := b.shard.resetUsed(); !wanted[b.shard] && !used {
			b.shard.replaced.Store(true)
			b.stop()
			delete(f.shards, address)
		}
	}
}
