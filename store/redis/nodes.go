package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Queries of Sentinels and nodes of a cluster, with bounds for the replies.

// ShortReply bounds replies such as OK or an address.
var ShortReply = resp.Limits{Values: 16, Bytes: 1 << 10}

// MaxPrimaries is the maximum number of primaries of a cluster: its makers recommend at most a
// thousand nodes, replicas included. Twice as many shards may run while primaries are replaced.
const MaxPrimaries = 500

// Query sends a command and waits for its reply, within the connection's timeout.
func (c *Conn) Query(ctx context.Context, limits resp.Limits, args ...string) (*resp.Reply, error) {
	r := &resp.Reply{}
	r.Reset(limits)
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

// Primary queries a Sentinel for the address of the primary with the name master.
func (c *Conn) Primary(ctx context.Context, master string) (address string, err error) {
	r, err := c.Query(ctx, ShortReply, "SENTINEL", "get-master-addr-by-name", master)
	switch {
	case err != nil:
		return "", err
	case r.Kind(0) == resp.Nil:
		return "", fmt.Errorf("sentinel %s knows no primary called %q", c.Address, master)
	case r.Kind(0) != resp.Array || r.Len() != 3:
		return "", BadReply("ask Sentinel %s for the primary: %s is not an address", c.Address, Describe(r, 0))
	}
	if address, err = NodeAt(r.Text(1), r.Text(2), c.Address); err != nil {
		return "", BadReply("ask Sentinel %s for the primary: %w", c.Address, err)
	}
	return address, nil
}

// Slots queries a node of a cluster for the primaries of all slots.
func (c *Conn) Slots(ctx context.Context) (all []NodeSlots, err error) {
	r, err := c.Query(ctx, slotsLimits, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	if r.Kind(0) != resp.Array {
		return nil, BadReply("read the slots: %s is not a list", Describe(r, 0))
	}
	primaries := map[string]bool{}
	for i := 1; i < r.Len(); i = r.After(i) {
		s, err := c.parseSlots(r, i)
		if err != nil {
			return nil, BadReply("read the slots: %w", err)
		}
		primaries[s.Primary] = true
		all = append(all, s)
	}
	if len(primaries) > MaxPrimaries {
		return nil, BadReply("read the slots: %d primaries, at most %d are known to work", len(primaries), MaxPrimaries)
	}
	return all, nil
}

// A NodeSlots is a range of slots, and the address of their primary.
type NodeSlots struct {
	First, Last uint16
	Primary     string
}

// slotsLimits is enough for a cluster where every third slot has another primary than the one
// before, with two replicas each.
var slotsLimits = resp.Limits{Values: 1 << 17, Bytes: 2 << 20}

// parseSlots parses an element of CLUSTER SLOTS: first, last, primary, replicas.
func (c *Conn) parseSlots(r *resp.Reply, i int) (s NodeSlots, err error) {
	if r.Kind(i) != resp.Array || r.Int(i) < 3 {
		return s, fmt.Errorf("%s is not a range of slots", Describe(r, i))
	}
	first := r.Int(i + 1)
	last := r.Int(i + 2)
	node := i + 3
	if r.Kind(i+1) != resp.Integer || r.Kind(i+2) != resp.Integer || first < 0 || last < first || last >= Slots {
		return s, fmt.Errorf("%s to %s is not a range of slots", Describe(r, i+1), Describe(r, i+2))
	}
	if r.Kind(node) != resp.Array || r.Int(node) < 2 || r.Kind(node+2) != resp.Integer {
		return s, fmt.Errorf("%s is not a node", Describe(r, node))
	}
	address, err := NodeAt(r.Text(node+1), strconv.FormatInt(r.Int(node+2), 10), c.Address)
	return NodeSlots{uint16(first), uint16(last), address}, err //nolint:gosec // below Slots
}

// DataID identifies the data of the server: it changes when the server starts, and when another server
// becomes the primary. It is empty if the server does not report it, or forbids INFO.
func (c *Conn) DataID(ctx context.Context) (string, error) {
	run, err := c.info(ctx, "server", "run_id")
	if err != nil || run == "" {
		return "", err
	}
	history, err := c.info(ctx, "replication", "master_replid")
	if err != nil || history == "" {
		return "", err
	}
	return run + " " + history, nil
}

// info returns a field of a section of INFO, "" if it is absent.
func (c *Conn) info(ctx context.Context, section, field string) (string, error) {
	r, err := c.Query(ctx, infoLimits, "INFO", section)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(r.Text(0)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return value, nil
		}
	}
	return "", nil
}

// infoLimits is enough for a section of INFO, with a hundred replicas.
var infoLimits = resp.Limits{Values: 1, Bytes: 64 << 10}

// Describe describes value i of r, for errors.
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

// NodeAt returns the address of a node from a host and port that the server at sender has sent.
func NodeAt(host, port, sender string) (address string, err error) {
	if host == "" { // the server that answered
		host, _, _ = net.SplitHostPort(sender)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	isInvalid := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '@' }
	if err != nil || number == 0 || len(host) > 255 || strings.ContainsFunc(host, isInvalid) {
		return "", fmt.Errorf("%q and %q are not a host and port", host[:min(len(host), 40)], port[:min(len(port), 40)])
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}
