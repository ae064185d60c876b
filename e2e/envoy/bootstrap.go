package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// object and list are what a YAML file decodes to.
type (
	// object and list are decoded YAML.
	object = map[string]any
	list   = []any
)

// patience is the connect_timeout of all clusters, and replaces other timeouts if
// [Options.Patient] is set. A busy machine may exceed the one second in examples, and a call that
// fails for that reason is not limited.
const patience = "3600s"

// render returns a copy of the configuration as JSON that can run concurrently with others:
// listeners and the admin page use free ports on loopback, clusters and endpoints are replaced by
// the options, and connect_timeout is extended.
func render(o Options) ([]byte, error) {
	var config object
	if err := yaml.Unmarshal(o.Bootstrap, &config); err != nil {
		return nil, fmt.Errorf("parse the configuration of Envoy: %w", err)
	}
	free := socketAddress("127.0.0.1", 0)
	config["admin"] = object{"address": free}
	static, _ := config["static_resources"].(object)
	configured := objects(static["clusters"])
	for _, c := range configured {
		c["connect_timeout"] = patience
	}
	for name, endpoints := range o.Clusters {
		at := slices.IndexFunc(configured, func(c object) bool { return c["name"] == name })
		if at < 0 {
			return nil, fmt.Errorf("cluster %q: not in the configuration of Envoy", name)
		}
		assignment, err := loadAssignment(name, endpoints)
		if err != nil {
			return nil, err
		}
		configured[at]["load_assignment"] = assignment
	}
	for _, listener := range objects(static["listeners"]) {
		own := free
		// The cluster points to this Envoy, whose ports are not known yet.
		if uses := endpointsAt(configured, hostPort(listener["address"])); len(uses) > 0 {
			path := filepath.Join(o.Dir, fmt.Sprint(listener["name"])+".sock")
			if len(path) > maxSocketPath {
				return nil, fmt.Errorf("socket %s: longer than %d bytes", path, maxSocketPath)
			}
			own = object{"pipe": object{"path": path}}
			for _, use := range uses {
				use.cluster["type"] = "STATIC" // no DNS
				use.endpoint["address"] = own
			}
		}
		listener["address"] = own
	}
	if err := moveEndpoints(configured, o.Endpoints); err != nil {
		return nil, err
	}
	if o.Patient && !extendTimeouts(config) {
		return nil, errors.New("the configuration of Envoy has no rate limit filter")
	}
	return json.Marshal(config)
}

// extendTimeouts implements [Options.Patient]. It reports whether a rate limit filter was found.
func extendTimeouts(config any) (found bool) {
	switch c := config.(type) {
	case list:
		for _, v := range c {
			found = extendTimeouts(v) || found
		}
	case object:
		switch kind, _ := c["@type"].(string); {
		case strings.HasSuffix(kind, ".ratelimit.v3.RateLimit"):
			c["timeout"] = patience
			found = true
		case strings.HasSuffix(kind, ".RateLimitQuotaFilterConfig"): // does not wait for replies
			found = true
		case strings.HasSuffix(kind, ".HttpConnectionManager"):
			c["stream_idle_timeout"] = patience
			c["request_headers_timeout"] = patience
		}
		if _, isCheck := c["grpc_health_check"]; isCheck {
			c["timeout"] = patience
		}
		if keepalive, ok := c["connection_keepalive"].(object); ok {
			keepalive["timeout"] = patience
		}
		if route, ok := c["route"].(object); ok && route["cluster"] != nil && route["timeout"] == nil {
			route["timeout"] = patience // Envoy's default is 15 s
		}
		for _, v := range c {
			found = extendTimeouts(v) || found
		}
	}
	return found
}

// moveEndpoints replaces addresses of endpoints. It finds all of them before it replaces one,
// because a new address may equal another old one.
func moveEndpoints(clusters []object, moves map[string]string) error {
	found := make(map[string][]clusterEndpoint)
	for from := range moves {
		if found[from] = endpointsAt(clusters, from); len(found[from]) == 0 {
			return fmt.Errorf("endpoint %s: not in a cluster of the configuration of Envoy", from)
		}
	}
	for from, uses := range found {
		address, err := parseAddress(moves[from])
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", from, err)
		}
		for _, use := range uses {
			use.endpoint["address"] = address
		}
	}
	return nil
}

// maxSocketPath is the maximum length of a Unix socket path, without the final 0.
const maxSocketPath = 107

// clusterEndpoint is an endpoint and its cluster.
type clusterEndpoint struct{ cluster, endpoint object }

// endpointsAt returns the endpoints with the given host:port.
func endpointsAt(clusters []object, address string) []clusterEndpoint {
	var found []clusterEndpoint
	for _, cluster := range clusters {
		assignment, _ := cluster["load_assignment"].(object)
		for _, locality := range objects(assignment["endpoints"]) {
			for _, host := range objects(locality["lb_endpoints"]) {
				endpoint, _ := host["endpoint"].(object)
				if at := hostPort(endpoint["address"]); at != "" && at == address {
					found = append(found, clusterEndpoint{cluster, endpoint})
				}
			}
		}
	}
	return found
}

// objects returns the elements of a list that are objects.
func objects(l any) []object {
	var objects []object
	all, _ := l.(list)
	for _, e := range all {
		if o, ok := e.(object); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// hostPort formats a socket address as host:port. It returns "" for other kinds of address.
func hostPort(address any) string {
	a, _ := address.(object)
	socket, ok := a["socket_address"].(object)
	if !ok {
		return ""
	}
	return net.JoinHostPort(fmt.Sprint(socket["address"]), fmt.Sprint(socket["port_value"]))
}

func loadAssignment(cluster string, endpoints []string) (object, error) {
	var hosts list
	for _, endpoint := range endpoints {
		address, err := parseAddress(endpoint)
		if err != nil {
			return nil, fmt.Errorf("endpoint of cluster %q: %w", cluster, err)
		}
		hosts = append(hosts, object{"endpoint": object{"address": address}})
	}
	return object{
		"cluster_name": cluster,
		"endpoints":    list{object{"lb_endpoints": hosts}},
	}, nil
}

// parseAddress parses host:port, or unix:// and a path.
func parseAddress(hostPort string) (object, error) {
	if path, unix := strings.CutPrefix(hostPort, "unix://"); unix {
		return object{"pipe": object{"path": path}}, nil
	}
	host, digits, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return nil, err
	}
	return socketAddress(host, port), nil
}

func socketAddress(host string, port uint64) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}
