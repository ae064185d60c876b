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
	// look is how often who the primaries are is asked again. Errors make it sooner, but no
	// sooner than rest after the last time.
	look = time.Second
	rest = 20 * time.Millisecond
)

// run keeps f until ctx ends, and returns when all that it started has ended.
func (f *fleet) run(ctx context.Context) {
	defer func() {
		f.ran.Wait()
		if f.watch != nil {
			f.watch.Close()
		}
	}()
	f.mu.Lock()
	f.start = func(l *lane) context.CancelFunc {
		ctx, end := context.WithCancel(ctx)
		f.ran.Go(func() { l.run(ctx) })
		return end
	}
	for _, s := range f.chart.Load().spans {
		f.lanes[s.lane.shard] = &berth{s.lane, f.start(s.lane)}
	}
	f.mu.Unlock()
	switch {
	case f.server.Nodes != nil:
		c := &cluster{fleet: f}
		defer c.close()
		f.follow(ctx, c.look)
	case f.watch != nil:
		f.ran.Go(func() { f.watch.Listen(ctx) })
		f.follow(ctx, func(ctx context.Context) {
			if address := f.watch.Look(ctx); address != "" { // a primary that was replaced may go on answering
				f.lane(0).leave(address)
			}
		})
	default:
		<-ctx.Done()
	}
	f.mu.Lock()
	f.start = nil
	f.mu.Unlock()
}

// follow looks who the primaries are, each second and whenever there is reason to.
func (f *fleet) follow(ctx context.Context, again func(context.Context)) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	calm := time.NewTimer(0)
	defer calm.Stop()
	for {
		f.options.guard(func() { again(ctx) })
		calm.Reset(rest)
		select {
		case <-ctx.Done():
			return
		case <-calm.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.anew:
		}
	}
}

// A cluster tells its fleet whose the slots are. One goroutine uses it.
type cluster struct {
	fleet  *fleet
	client *redis.Conn // nil without a connection
	away   redis.Kind  // why no node told, the last time; empty if one did
	since  time.Time   // the first of those times
}

// look asks one node and has the fleet keep to what it says: those whose lanes are up first, then
// all that are known. A node that was cut off from the others does not know that it was replaced,
// but takes no writes, so its lane is not up.
func (c *cluster) look(ctx context.Context) {
	var errs []error
	for _, address := range c.candidates() {
		all, err := c.ask(ctx, address)
		if err == nil {
			c.fleet.keepTo(all)
			if c.away != "" {
				c.fleet.options.Log.back(c.name(), clock().Sub(c.since), Repaid{})
			}
			c.away = ""
			return
		}
		if ctx.Err() != nil {
			return
		}
		errs = append(errs, err)
	}
	why := redis.Joined(errs)
	c.fleet.options.observe().Failed(string(why.Kind))
	if c.away == "" {
		c.since = clock()
	}
	if c.away != why.Kind {
		c.fleet.options.Log.away(c.name(), why)
	}
	c.away = why.Kind
}

// name is how the log calls the cluster. It differs from the names of lanes, one of which may be the only node of the URL.
func (c *cluster) name() string { return "cluster of " + c.fleet.server.String() }

// mostDown is how many nodes whose lanes are down are asked, beside those that the URL names: each may
// take as long as a connection, and a node that lies may have named them.
const mostDown = 8

// candidates returns whom to ask, in order.
func (c *cluster) candidates() (all []string) {
	var down []string
	if c.client != nil {
		all = append(all, c.client.Address)
	}
	c.fleet.mu.Lock()
	for address, b := range c.fleet.lanes {
		if b.lane.up() {
			all = append(all, address)
		} else {
			down = append(down, address)
		}
	}
	c.fleet.mu.Unlock()
	if c.client != nil && slices.Contains(down, c.client.Address) {
		all = all[1:]
	}
	down = down[:min(len(down), mostDown)]
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(all, c.fleet.server.Nodes, down), func(address string) bool {
		was := seen[address]
		seen[address] = true
		return was
	})
}

// ask asks the node at address.
func (c *cluster) ask(ctx context.Context, address string) (all []redis.NodeSlots, err error) {
	if c.client != nil && c.client.Address != address {
		c.close()
	}
	if c.client == nil {
		if c.client, err = redis.Dial(ctx, c.fleet.server.At(address), c.fleet.timeout); err != nil {
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

// keepTo makes f's lanes those of all primaries.
func (f *fleet) keepTo(all []redis.NodeSlots) {
	slices.SortFunc(all, func(a, b redis.NodeSlots) int { return cmp.Compare(a.First, b.First) })
	spans, wanted := make([]span, len(all)), map[*lane]bool{}
	for i, s := range all {
		if spans[i] = (span{s, f.laneAt(s.Primary)}); spans[i].lane == nil {
			return
		}
		wanted[spans[i].lane] = true
	}
	if !slices.Equal(spans, f.chart.Load().spans) {
		f.chart.Store(&chart{spans})
		f.goBy()
		f.store.notifyReached()
		for l := range wanted { // what is owed follows its slots
			l.nudge()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for address, b := range f.lanes {
		// A node that is about to get its first slot is told of by redirections alone.
		if used := b.lane.wasUsed(); !wanted[b.lane] && !used {
			b.lane.replaced.Store(true)
			b.end()
			delete(f.lanes, address)
		}
	}
}
