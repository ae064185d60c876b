package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartCluster runs a cluster of so many primaries, each with a replica if replicas is set: those are
// the second half. A node that does not answer for patience is taken for gone. It waits until all know
// all.
func StartCluster(tb testing.TB, primaries int, replicas bool, patience time.Duration) (nodes []*Server) {
	tb.Helper()
	count := primaries
	if replicas {
		count *= 2
	}
	binary := Binaries(tb)[0]
	for range count {
		nodes = append(nodes, StartBinary(tb, binary, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(patience.Milliseconds(), 10)))
	}
	for i, n := range nodes {
		if i > 0 {
			n.Must("CLUSTER", "MEET", "127.0.0.1", nodes[0].Port())
		}
		if i < primaries {
			n.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/primaries), strconv.Itoa((i+1)*16384/primaries-1))
		}
	}
	everywhere := func(what string, holds func(n *Server) bool) {
		tb.Helper()
		for _, n := range nodes {
			Eventually(tb, what, func() bool { return holds(n) })
		}
	}
	everywhere("all nodes know all", func(n *Server) bool {
		return strings.Contains(n.Must("CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d", count))
	})
	for i, n := range nodes[primaries:] {
		id := nodes[i].Must("CLUSTER", "MYID")
		Eventually(tb, "a node is a replica", func() bool {
			_, err := n.Command("CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	everywhere("the cluster is ready", func(n *Server) bool {
		return strings.Contains(n.Must("CLUSTER", "INFO"), "cluster_state:ok")
	})
	for _, n := range nodes[primaries:] {
		Eventually(tb, "the replicas are in step", func() bool { return strings.Contains(n.Must("INFO", "replication"), "master_link_status:up") })
	}
	return nodes
}
