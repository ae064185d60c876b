package luahost

import (
	"crypto/sha1" //nolint:gosec // an ID
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A Cluster is servers that divide the slots. Its methods may be called concurrently. [NewCluster]
// returns one.
type Cluster struct {
	moving chan struct{} // full while keys are moved

	mu    sync.Mutex
	nodes []*node
	slots [redis.Slots]struct{ owner, importer *node } // importer is nil unless the slot moves
}

// A node is a server's place in a cluster.
type node struct {
	cluster *Cluster
	address string
	server  *Server
	left    bool // replaced by another; guarded by Cluster.mu
}

// NewCluster returns a cluster of new servers with the given addresses, which the cluster announces
// to clients. Each has the same number of slots.
func NewCluster(addresses ...string) *Cluster {
	c := &Cluster{moving: make(chan struct{}, 1)}
	for _, address := range addresses {
		c.Join(address)
	}
	for slot := range c.slots {
		c.slots[slot].owner = c.nodes[slot*len(c.nodes)/redis.Slots]
	}
	return c
}

// Join adds a new server without slots.
func (c *Cluster) Join(address string) *Server {
	s := NewServer()
	n := &node{cluster: c, address: address, server: s}
	s.node = n
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return s
}

// Servers returns the servers, in the order of their addresses and joins.
func (c *Cluster) Servers() (all []*Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		all = append(all, n.server)
	}
	return all
}

// Replace gives the slots of server i to a new server with another address, as a failover does, and
// returns it. The new server has no keys: see [Server.Restore]. The old one has left the cluster; it
// is not changed, and accepts commands like a server that was cut off.
func (c *Cluster) Replace(i int, address string) *Server {
	s := NewServer()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &node{cluster: c, address: address, server: s}
	s.node = n
	for slot := range c.slots {
		at := &c.slots[slot]
		if at.owner == c.nodes[i] {
			at.owner = n
		}
		if at.importer == c.nodes[i] {
			at.importer = n
		}
	}
	c.nodes[i].left = true
	c.nodes[i] = n
	return s
}

// BeginMove makes server to import a slot. Existing keys stay until [Cluster.MoveSlot], and other
// keys are redirected by ASK.
func (c *Cluster) BeginMove(slot uint16, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[slot].importer = c.nodes[to]
}

// MoveSlot moves a slot with all its keys to server to.
func (c *Cluster) MoveSlot(slot uint16, to int) {
	c.moving <- struct{}{}
	defer func() { <-c.moving }()
	c.mu.Lock()
	from := c.slots[slot].owner
	into := c.nodes[to]
	c.mu.Unlock()
	if from == into {
		return
	}
	from.server.locked(func() {
		into.server.locked(func() {
			old := from.server.keys
			all := into.server.keys
			for name, v := range old {
				if redis.SlotOf([]byte(name)) == slot {
					all[name] = v
					delete(old, name)
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.slots[slot].owner = into
			c.slots[slot].importer = nil
		})
	})
}

// redirect returns the error for a command whose keys are not here, or nil.
func (s *Server) redirect(keys []string, asking bool) reply {
	if s.node == nil || len(keys) == 0 {
		return nil
	}
	slot := redis.SlotOf([]byte(keys[0]))
	present := 0
	for _, key := range keys {
		if redis.SlotOf([]byte(key)) != slot {
			return failure("CROSSSLOT Keys in request don't hash to the same slot")
		}
		if s.get(key) != nil {
			present++
		}
	}
	c := s.node.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.node.left {
		return nil
	}
	at := &c.slots[slot]
	moved := func(word string, to *node) reply {
		return failure(word + " " + strconv.Itoa(int(slot)) + " " + to.address)
	}
	switch {
	case at.owner == s.node && (at.importer == nil || present == len(keys)):
		return nil
	case at.owner == s.node && present == 0:
		return moved("ASK", at.importer)
	case at.owner != s.node && (!asking || at.importer != s.node):
		return moved("MOVED", at.owner)
	case at.owner != s.node && (present == len(keys) || len(keys) == 1):
		return nil
	}
	return failure("TRYAGAIN Multiple keys request during rehashing of slot")
}

const noCluster = failure("ERR This instance has cluster support disabled")

// clusterCommand is CLUSTER SLOTS.
func clusterCommand(s *Server, args []string) reply {
	switch {
	case strings.ToUpper(args[1]) != "SLOTS":
		return failure("ERR unknown subcommand '" + args[1] + "'. Try CLUSTER HELP.")
	case s.node == nil:
		return noCluster
	}
	c := s.node.cluster
	all := []reply{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for first := 0; first < redis.Slots; {
		owner := c.slots[first].owner
		next := first + 1
		for next < redis.Slots && c.slots[next].owner == owner {
			next++
		}
		host, port := splitAddress(owner.address)
		id := sha1.Sum([]byte(owner.address)) //nolint:gosec // as above
		all = append(all,
			[]reply{int64(first), int64(next - 1), []reply{host, port, hex.EncodeToString(id[:]), []reply{}}})
		first = next
	}
	return all
}

func splitAddress(address string) (host string, port int64) {
	host, text, _ := net.SplitHostPort(address)
	port, _ = parseInt(text)
	return host, port
}
