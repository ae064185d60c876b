package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// What Sentinels and nodes of a cluster are asked, and how much the replies may take.

// ShortReply is what replies such as OK or an address may take.
var ShortReply = resp.Limits{Values: 16, Bytes: 1 << 10}

// MaxPrimaries are as many as a cluster may have: its makers advise a thousand nodes, replicas among
// them. Twice as many lanes may run while primaries are replaced.
const MaxPrimaries = 500

// Query asks one thing, and takes as long as the connection may.
func (c *Conn) Query(ctx context.Context, most resp.Limits, args ...string) (*resp.Reply, error) {
	r := &resp.Reply{}
	r.Reset(most)
	err := c.Within(ctx, c.timeout, func() error {
		x := c.Begin()
		defer c.Free(x)
		x.Append(r, args...)
		if err := c.Exchange(x); err != nil {
			return err
		}
		return ReplyError(r)
	})
	return r, err
}

// Primary asks a Sentinel for the address of the primary that it calls master.
func (c *Conn) Primary(ctx context.Context, master string) (address string, err error) {
	r, err := c.Query(ctx, ShortReply, "SENTINEL", "get-master-addr-by-name", master)
	switch {
	case err != nil:
		return "", err
	case r.Kind(0) == resp.Nil:
		return "", fmt.Errorf("sentinel %s knows no primary called %q", c.Address, master)
	case r.Kind(0) != resp.Array || r.Len() != 3:
		return "", BadReply("ask Sentinel %s for the primary: %s is no address", c.Address, Describe(r, 0))
	}
	if address, err = NodeAt(r.Text(1), r.Text(2), c.Address); err != nil {
		return "", BadReply("ask Sentinel %s for the primary: %w", c.Address, err)
	}
	return address, nil
}

// Slots asks a node of a cluster whose the slots are.
func (c *Conn) Slots(ctx context.Context) (all []NodeSlots, err error) {
	r, err := c.Query(ctx, slotsLimits, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	if r.Kind(0) != resp.Array {
		return nil, BadReply("read whose the slots are: %s is no list", Describe(r, 0))
	}
	primaries := map[string]bool{}
	for i := 1; i < r.Len(); i = r.After(i) {
		s, err := c.span(r, i)
		if err != nil {
			return nil, BadReply("read whose the slots are: %w", err)
		}
		primaries[s.Primary] = true
		all = append(all, s)
	}
	if len(primaries) > MaxPrimaries {
		return nil, BadReply("read whose the slots are: %d primaries, at most %d are known to work", len(primaries), MaxPrimaries)
	}
	return all, nil
}

// A NodeSlots is a range of slots that have one primary, and its address.
type NodeSlots struct {
	First, Last uint16
	Primary     string
}

// slotsLimits are enough for a cluster whose every third slot has another primary than the one before, with two
// replicas each.
var slotsLimits = resp.Limits{Values: 1 << 17, Bytes: 2 << 20}

// span reads an element of CLUSTER SLOTS: first, last, primary, replicas.
func (c *Conn) span(r *resp.Reply, i int) (s NodeSlots, err error) {
	if r.Kind(i) != resp.Array || r.Int(i) < 3 {
		return s, fmt.Errorf("%s is no range of slots", Describe(r, i))
	}
	first, last, node := r.Int(i+1), r.Int(i+2), i+3
	if r.Kind(i+1) != resp.Integer || r.Kind(i+2) != resp.Integer || first < 0 || last < first || last >= Slots {
		return s, fmt.Errorf("%s to %s is no range of slots", Describe(r, i+1), Describe(r, i+2))
	}
	if r.Kind(node) != resp.Array || r.Int(node) < 2 || r.Kind(node+2) != resp.Integer {
		return s, fmt.Errorf("%s is no node", Describe(r, node))
	}
	address, err := NodeAt(r.Text(node+1), strconv.FormatInt(r.Int(node+2), 10), c.Address)
	return NodeSlots{uint16(first), uint16(last), address}, err //nolint:gosec // below slots
}

// IsPrimary reports whether the server says that it is a primary.
func (c *Conn) IsPrimary(ctx context.Context) (bool, error) {
	r, err := c.Query(ctx, roleLimits, "ROLE")
	if err != nil {
		return false, err
	}
	if r.Kind(0) != resp.Array || r.Len() < 2 {
		return false, BadReply("ask %s for its role: %s is none", c.Address, Describe(r, 0))
	}
	return r.Text(1) == "master", nil
}

var (
	// roleLimits are enough for a primary with a hundred replicas, of which ROLE tells, too.
	roleLimits = resp.Limits{Values: 512, Bytes: 16 << 10}
	// replicasLimits are enough for as many, of each of which Sentinel says some fifty things.
	replicasLimits = resp.Limits{Values: 8 << 10, Bytes: 128 << 10}
)

// Replica asks a Sentinel whether a replica of master is at address, and returns that if so, and nothing
// otherwise.
func (c *Conn) Replica(ctx context.Context, master, address string) (string, error) {
	r, err := c.Query(ctx, replicasLimits, "SENTINEL", "REPLICAS", master)
	if err != nil {
		return "", err
	}
	if r.Kind(0) != resp.Array {
		return "", errors.New("no list of replicas")
	}
	for i := 1; i < r.Len(); i = r.After(i) {
		host, port := "", ""
		for k := i + 1; k+1 < r.After(i); k += 2 {
			switch r.Text(k) {
			case "ip":
				host = r.Text(k + 1)
			case "port":
				port = r.Text(k + 1)
			}
		}
		if at, err := NodeAt(host, port, ""); err == nil && at == address {
			return address, nil
		}
	}
	return "", nil
}

// Describe is what value i of r is, for errors.
func Describe(r *resp.Reply, i int) string {
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

// NodeAt returns the address of a node that the server at asked tells of as host and port.
func NodeAt(host, port, asked string) (address string, err error) {
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
