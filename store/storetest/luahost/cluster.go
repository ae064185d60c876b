package luahost

// A node is a server's place in a cluster.
type node struct{}

func (n *node) redirect(keys []string, asking bool) reply { return nil }

func clusterCommand(s *Server, args []string) reply {
	return failure("ERR This instance has cluster support disabled")
}
