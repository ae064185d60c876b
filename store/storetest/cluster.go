package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// StartCluster starts a cluster with the given number of primaries, followed by a replica of each
// if replicas is set. It waits until all nodes know each other. No failover happens, however busy
// the machine is: see [EnableFailover].
func StartCluster(tb testing.TB, primaries int, replicas bool) (nodes []*Server) {
	tb.Helper()
	count := primaries
	if replicas {
		count *= 2
	}
	for range count {
		nodes = append(nodes, startNode(tb))
	}
	for i, n := range nodes {
		if i > 0 {
			n.Must("CLUSTER", "MEET", "127.0.0.1", nodes[0].Port())
		}
		if i < primaries {
			add := []string{"CLUSTER", "ADDSLOTS"} // Redis 6.2 has no ADDSLOTSRANGE
			for slot := i * 16384 / primaries; slot < (i+1)*16384/primaries; slot++ {
				add = append(add, strconv.Itoa(slot))
			}
			n.Must(add...)
		}
	}
	introduceNodes(tb, nodes)
	for i, n := range nodes[primaries:] {
		id := nodes[i].Must("CLUSTER", "MYID")
		Eventually(tb, "the node is a replica", func() bool {
			_, err := n.Command("CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	ready(tb, nodes)
	for _, n := range nodes[primaries:] {
		Eventually(tb, "the replicas are synchronised",
			func() bool { return strings.Contains(n.Must("INFO", "replication"), "master_link_status:up") })
	}
	return nodes
}

func startNode(tb testing.TB) *Server {
	tb.Helper()
	return StartBinary(tb, Binaries(tb)[0], "--cluster-enabled", "yes", "--cluster-node-timeout", "600000")
}

// EnableFailover makes the nodes of a cluster fail over when a node has not answered for one second.
// Replicas are elected however long a busy machine delays the election.
func EnableFailover(nodes []*Server) {
	for _, n := range nodes {
		n.Must("CONFIG", "SET", "cluster-replica-validity-factor", "0")
		n.Must("CONFIG", "SET", "cluster-node-timeout", "1000")
	}
}

// introduceNodes waits until all nodes know each other.
func introduceNodes(tb testing.TB, nodes []*Server) {
	tb.Helper()
	for _, n := range nodes {
		Eventually(tb, "all nodes know each other", func() bool {
			return strings.Contains(n.Must("CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d", len(nodes)))
		})
	}
}

// ready waits until all nodes accept requests.
func ready(tb testing.TB, nodes []*Server) {
	tb.Helper()
	for _, n := range nodes {
		Eventually(tb, "the cluster is ready",
			func() bool { return strings.Contains(n.Must("CLUSTER", "INFO"), "cluster_state:ok") })
	}
}

// JoinCluster adds a primary without slots.
func JoinCluster(tb testing.TB, nodes []*Server) *Server {
	tb.Helper()
	n := startNode(tb)
	n.Must("CLUSTER", "MEET", "127.0.0.1", nodes[0].Port())
	introduceNodes(tb, append(slices.Clip(nodes), n))
	ready(tb, []*Server{n})
	return n
}

// MigrateKey moves a key of a slot that moves. It waits an hour if one of the nodes pauses.
func MigrateKey(from, to *Server, key string) {
	from.Must("MIGRATE", "127.0.0.1", to.Port(), key, "0", "3600000")
}

// MoveSlot moves a slot with all its keys, as redis-cli does. It calls between before each key.
func MoveSlot(from, to *Server, slot uint16, between func()) {
	number := strconv.Itoa(int(slot))
	there := to.Must("CLUSTER", "MYID")
	here := from.Must("CLUSTER", "MYID")
	to.Must("CLUSTER", "SETSLOT", number, "IMPORTING", here)
	from.Must("CLUSTER", "SETSLOT", number, "MIGRATING", there)
	between()
	for {
		key, _, _ := strings.Cut(from.Must("CLUSTER", "GETKEYSINSLOT", number, "1"), "\n")
		if key == "" {
			break
		}
		MigrateKey(from, to, key)
		between()
	}
	to.Must("CLUSTER", "SETSLOT", number, "NODE", there)
	from.Must("CLUSTER", "SETSLOT", number, "NODE", there)
}
