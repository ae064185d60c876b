package envoy

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// object and list are what a YAML file decodes to.
type (
	object = map[string]any
	list   = []any
)

// render returns a copy of the configuration, as JSON, that can run beside any
// other: every listener and the admin page on a free port of the loopback
// interface, the named clusters with other endpoints.
func render(bootstrap []byte, clusters map[string][]string) ([]byte, error) {
	var config object
	if err := yaml.Unmarshal(bootstrap, &config); err != nil {
		return nil, fmt.Errorf("parse the configuration of Envoy: %w", err)
	}
	free := socketAddress("127.0.0.1", 0)
	config["admin"] = object{"address": free}
	static, _ := config["static_resources"].(object)
	listeners, _ := static["listeners"].(list)
	for _, l := range listeners {
		if listener, ok := l.(object); ok {
			listener["address"] = free
		}
	}
	configured, _ := static["clusters"].(list)
	for name, endpoints := range clusters {
		cluster := find(configured, name)
		if cluster == nil {
			return nil, fmt.Errorf("cluster %q: not in the configuration of Envoy", name)
		}
		assignment, err := loadAssignment(name, endpoints)
		if err != nil {
			return nil, err
		}
		cluster["load_assignment"] = assignment
	}
	return json.Marshal(config)
}

func find(clusters list, name string) object {
	for _, c := range clusters {
		if cluster, ok := c.(object); ok && cluster["name"] == name {
			return cluster
		}
	}
	return nil
}

func loadAssignment(cluster string, endpoints []string) (object, error) {
	var hosts list
	for _, endpoint := range endpoints {
		host, digits, err := net.SplitHostPort(endpoint)
		if err != nil {
			return nil, fmt.Errorf("endpoint of cluster %q: %w", cluster, err)
		}
		port, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("endpoint of cluster %q: %w", cluster, err)
		}
		hosts = append(hosts, object{"endpoint": object{"address": socketAddress(host, port)}})
	}
	return object{
		"cluster_name": cluster,
		"endpoints":    list{object{"lb_endpoints": hosts}},
	}, nil
}

func socketAddress(host string, port uint64) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}
