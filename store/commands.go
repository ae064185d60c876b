package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// What a client asks servers, Sentinels and nodes of a cluster, and how much the replies may take.

// short is what replies such as OK or an address may take.
var short = resp.Limits{Values: 16, Bytes: 1 << 10}

// mostOf is more than what the script answers m by: a counter of five numbers and a ring, each.
func (m *message) most() resp.Limits {
	return resp.Limits{Values: 64 + 4*(len(m.keys)+len(m.args)), Bytes: 4<<10 + 512*len(m.keys)}
}

// run runs the script on m and makes r its reply. It waits until the reply is there or the
// connection is closed.
func (c *client) run(m *message, r *reply) error { return c.eval(decideScript, decideSHA, m, r) }

// eval is run for a script of that hash.
func (c *client) eval(script, sha string, m *message, r *reply) error {
	lacks, err := c.once("EVALSHA", sha, m, r)
	if lacks {
		_, err = c.once("EVAL", script, m, r)
	}
	return err
}

func (c *client) once(command, script string, m *message, r *reply) (lacks bool, err error) {
	x := c.begin()
	defer c.free(x)
	x.script(command, script, m, r)
	if err := c.exchange(x); err != nil {
		return false, err
	}
	return unknown(&r.raw), r.take()
}

// unknown reports whether a server lacks the script: one that was started or took over has never
// seen it. SCRIPT LOAD is forbidden by some proxies.
func unknown(r *resp.Reply) bool {
	return r.Kind(0) == resp.Failed && strings.HasPrefix(r.Text(0), "NOSCRIPT")
}

// script adds a run of the script on m, to which r is the reply.
func (x *exchange) script(command, script string, m *message, r *reply) {
	r.raw.Reset(m.most())
	x.command(&r.raw, 3+len(m.keys)+len(m.args))
	x.out = resp.AppendArgument(x.out, command)
	x.out = resp.AppendArgument(x.out, script)
	x.out = resp.AppendArgument(x.out, numeral(len(m.keys)))
	for _, key := range m.keys {
		x.out = resp.AppendArgument(x.out, key)
	}
	for _, arg := range m.args {
		x.out = resp.AppendArgument(x.out, arg)
	}
}

// runs is run for several messages in one write. Each run gets a reply or an error of its own.
func (c *client) runs(all []*run) {
	if c.pipe(all, "EVALSHA", decideSHA, func(*run) bool { return true }) {
		c.pipe(all, "EVAL", decideScript, func(r *run) bool { return r.unknown && !r.native })
	}
}

// pipe runs the script for those that want it. It reports whether the server lacks the script.
func (c *client) pipe(all []*run, command, script string, wants func(*run) bool) (lacks bool) {
	x := c.begin()
	defer c.free(x)
	for _, r := range all {
		if !wants(r) {
			continue
		}
		if r.native {
			x.natives(r)
			continue
		}
		if r.asking {
			r.allowed.Reset(short)
			x.ask(&r.allowed, "ASKING")
		}
		x.script(command, script, &r.message, &r.reply)
	}
	err := c.exchange(x)
	for _, r := range all {
		switch {
		case !wants(r):
			continue
		case err != nil:
			r.err = err
			continue
		case r.native:
			r.err = nil
			r.counted()
			continue
		}
		r.unknown = unknown(&r.reply.raw)
		lacks = lacks || r.unknown
		r.err = r.reply.take()
	}
	return lacks
}

// natives adds the commands of r's asks.
func (x *exchange) natives(r *run) {
	n := 0
	for _, a := range r.asks {
		for words := range a.call.commands() {
			if r.asking {
				r.allowed.Reset(short)
				x.ask(&r.allowed, "ASKING")
			}
			if n == len(r.said) {
				r.said = append(r.said, &resp.Reply{})
			}
			r.said[n].Reset(short)
			x.ask(r.said[n], words...)
			n++
		}
	}
}

// counted has the asks of a native run know what the store said.
func (r *run) counted() {
	said := r.said
	for _, a := range r.asks {
		a.found = a.found[:0]
		told := 0
		for words := range a.call.commands() {
			told = a.counted(words, told, said[0])
			said = said[1:]
		}
	}
}

// take makes r what its raw says.
func (r *reply) take() error {
	raw := &r.raw
	if err := failed(raw); err != nil {
		return err
	}
	r.values = r.values[:0]
	if raw.Kind(0) != resp.Array {
		return &failure{Reply, fmt.Errorf("read the script's reply: %s, want an array", shown(raw, 0))}
	}
	for i := 1; i < raw.Len(); i++ {
		switch raw.Kind(i) {
		case resp.Integer:
			r.values = append(r.values, value{number: raw.Int(i)})
		case resp.Bulk:
			r.values = append(r.values, value{text: raw.Text(i), isText: true})
		default:
			return &failure{Reply, fmt.Errorf("read the script's reply: element %d is %s, want a number or a string", i, shown(raw, i))}
		}
	}
	return r.begin()
}

// shown is what value i of r is, for errors.
func shown(r *resp.Reply, i int) string {
	switch r.Kind(i) {
	case resp.Integer:
		return "the number " + strconv.FormatInt(r.Int(i), 10)
	case resp.Array:
		return fmt.Sprintf("an array of %d", r.Int(i))
	case resp.Nil:
		return "nothing"
	default:
		text := r.Text(i)
		return fmt.Sprintf("%q", text[:min(len(text), 40)])
	}
}

// warm has the server know the script, by a run on nothing.
func (c *client) warm(f *flight) error { return c.run(&f.message, &f.reply) }

// question asks one thing, and takes as long as the connection may.
func (c *client) question(ctx context.Context, most resp.Limits, args ...string) (*resp.Reply, error) {
	r := &resp.Reply{}
	r.Reset(most)
	err := c.within(ctx, func() error {
		x := c.begin()
		defer c.free(x)
		x.ask(r, args...)
		if err := c.exchange(x); err != nil {
			return err
		}
		return failed(r)
	})
	return r, err
}

// primary asks a Sentinel for the address of the primary that it calls master.
func (c *client) primary(ctx context.Context, master string) (address string, err error) {
	r, err := c.question(ctx, short, "SENTINEL", "get-master-addr-by-name", master)
	switch {
	case err != nil:
		return "", err
	case r.Kind(0) == resp.Nil:
		return "", fmt.Errorf("sentinel %s knows no primary called %q", c.address, master)
	case r.Kind(0) != resp.Array || r.Len() != 3:
		return "", &failure{Reply, fmt.Errorf("ask Sentinel %s for the primary: %s is no address", c.address, shown(r, 0))}
	}
	if address, err = nodeAt(r.Text(1), r.Text(2), c.address); err != nil {
		return "", &failure{Reply, fmt.Errorf("ask Sentinel %s for the primary: %w", c.address, err)}
	}
	return address, nil
}

// slots asks a node of a cluster whose the slots are. The spans that it returns lack their lanes.
func (c *client) slots(ctx context.Context) (spans []span, err error) {
	r, err := c.question(ctx, chartLimits, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	if r.Kind(0) != resp.Array {
		return nil, &failure{Reply, fmt.Errorf("read whose the slots are: %s is no list", shown(r, 0))}
	}
	primaries := map[string]bool{}
	for i := 1; i < r.Len(); i = r.After(i) {
		s, err := c.span(r, i)
		if err != nil {
			return nil, &failure{Reply, fmt.Errorf("read whose the slots are: %w", err)}
		}
		primaries[s.address] = true
		spans = append(spans, s)
	}
	if len(primaries) > mostPrimaries {
		return nil, &failure{Reply, fmt.Errorf("read whose the slots are: %d primaries, at most %d are known to work", len(primaries), mostPrimaries)}
	}
	return spans, nil
}

// chartLimits are enough for a cluster whose every third slot has another primary than the one before, with two
// replicas each.
var chartLimits = resp.Limits{Values: 1 << 17, Bytes: 2 << 20}

// span reads an element of CLUSTER SLOTS: first, last, primary, replicas.
func (c *client) span(r *resp.Reply, i int) (s span, err error) {
	if r.Kind(i) != resp.Array || r.Int(i) < 3 {
		return s, fmt.Errorf("%s is no range of slots", shown(r, i))
	}
	first, last, node := r.Int(i+1), r.Int(i+2), i+3
	if r.Kind(i+1) != resp.Integer || r.Kind(i+2) != resp.Integer || first < 0 || last < first || last >= slots {
		return s, fmt.Errorf("%s to %s is no range of slots", shown(r, i+1), shown(r, i+2))
	}
	if r.Kind(node) != resp.Array || r.Int(node) < 2 || r.Kind(node+2) != resp.Integer {
		return s, fmt.Errorf("%s is no node", shown(r, node))
	}
	address, err := nodeAt(r.Text(node+1), strconv.FormatInt(r.Int(node+2), 10), c.address)
	return span{first: uint16(first), last: uint16(last), address: address}, err //nolint:gosec // below slots
}
