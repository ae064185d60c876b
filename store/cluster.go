package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A cluster tells its fleet whose the slots are. One goroutine uses it.
type cluster struct {
	fleet  *fleet
	client *client // nil without a connection
	away   Kind    // why no node told, the last time; empty if one did
}

// look asks one node and has the fleet keep to what it says: those whose lanes are up first, then
// all that are known. A node that was cut off from the others does not know that it was replaced,
// but takes no writes, so its lane is not up.
func (c *cluster) look(ctx context.Context) {
	var errs []error
	for _, address := range c.candidates() {
		spans, err := c.ask(ctx, address)
		if err == nil {
			c.fleet.keepTo(spans)
			c.away = ""
			return
		}
		if ctx.Err() != nil {
			return
		}
		errs = append(errs, err)
	}
	why := &failure{kindOf(errs[0]), errors.Join(errs...)}
	c.fleet.options.observe().Failed(c.fleet.server.String(), why.kind)
	if c.away != why.kind {
		c.fleet.options.Log.away(c.fleet.server.String(), why)
	}
	c.away = why.kind
}

// mostDown is how many nodes whose lanes are down are asked, beside those that the URL names: each may
// take as long as a connection, and a node that lies may have named them.
const mostDown = 8

// candidates returns whom to ask, in order.
func (c *cluster) candidates() (all []string) {
	var down []string
	if c.client != nil {
		all = append(all, c.client.address)
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
	if c.client != nil && slices.Contains(down, c.client.address) {
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
func (c *cluster) ask(ctx context.Context, address string) (spans []span, err error) {
	if c.client != nil && c.client.address != address {
		c.close()
	}
	if c.client == nil {
		if c.client, err = dial(ctx, c.fleet.server.at(address), c.fleet.timeout); err != nil {
			c.client = nil
			return nil, err
		}
	}
	if spans, err = c.client.slots(ctx); err == nil && len(spans) == 0 {
		err = errors.New("CLUSTERDOWN no node has slots")
	}
	if err != nil {
		c.close()
	}
	return spans, err
}

func (c *cluster) close() {
	if c.client != nil {
		c.client.close()
		c.client = nil
	}
}

// keepTo makes f's lanes those of spans, of which the lanes are not known yet.
func (f *fleet) keepTo(spans []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	wanted := map[*lane]bool{}
	for i := range spans {
		if spans[i].lane = f.laneAt(spans[i].address); spans[i].lane == nil {
			return
		}
		wanted[spans[i].lane] = true
	}
	if !slices.Equal(spans, f.chart.Load().spans) {
		f.chart.Store(&chart{spans})
		for l := range wanted { // what is owed follows its slots
			l.nudge()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for address, b := range f.lanes {
		// A node that is about to get its first slot is told of by redirections alone.
		if used := b.lane.wasUsed(); !wanted[b.lane] && !used {
			b.end()
			delete(f.lanes, address)
		}
	}
}

// nodeAt returns the address of a node that the server at asked tells of as host and port.
func nodeAt(host, port, asked string) (address string, err error) {
	if host == "" { // the same
		host, _, _ = net.SplitHostPort(asked)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '@' }
	if err != nil || number == 0 || len(host) > 255 || strings.ContainsFunc(host, odd) {
		return "", fmt.Errorf("%q and %q are no host and port", host[:min(len(host), 40)], port[:min(len(port), 40)])
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}
