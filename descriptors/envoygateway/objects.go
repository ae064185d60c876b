package envoygateway

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// The API groups of the kinds that are read.
const (
	gatewayGroup = "gateway.networking.k8s.io"
	policyGroup  = "gateway.envoyproxy.io"
)

// Objects collects the objects from which rules are made. The zero value is ready to use. It is not
// safe for concurrent use.
type Objects struct {
	gateways   []*gateway
	routes     []*route
	policies   []*policy
	namespaces map[string]map[string]string // labels
	// unread are the objects and fields that affect the rules but are not supported.
	unread   []string
	unreadAt rules.Pos
	// first is the first object that was read.
	first       string
	firstAt     rules.Pos
	diagnostics rules.Diagnostics
}

// name is the name of an object with its namespace.
type name struct{ namespace, name string }

func (n name) String() string { return n.namespace + "/" + n.name }

type metadata struct {
	Name              string
	Namespace         string
	Labels            map[string]string
	CreationTimestamp string `yaml:"creationTimestamp"`
	pos               rules.Pos
}

// fullName returns the name with the namespace, by default "default", as in kubectl.
func (m *metadata) fullName() name { return name{cmp.Or(m.Namespace, "default"), m.Name} }

// compare orders objects as Envoy Gateway does: oldest first, then by name.
func (m *metadata) compare(o *metadata) int {
	return cmp.Or(cmp.Compare(m.CreationTimestamp, o.CreationTimestamp),
		cmp.Compare(m.fullName().String(), o.fullName().String()))
}

type gateway struct {
	Metadata metadata
	Spec     struct{ Listeners []*listener }
}

type listener struct {
	Name, Hostname, Protocol string
	Port                     int
	AllowedRoutes            struct {
		Kinds      []struct{ Kind string }
		Namespaces struct {
			From     string
			Selector selector
		}
	} `yaml:"allowedRoutes"`

	gateway name
}

type route struct {
	Kind     string
	Metadata metadata
	Spec     struct {
		ParentRefs []struct {
			Kind, Namespace, Name string
			SectionName           string `yaml:"sectionName"`
			Port                  int
		} `yaml:"parentRefs"`
		Hostnames []string
		Rules     *[]struct {
			Name    string
			Matches *[]routeMatch
			Filters []struct{ Type string }
		}
	}
}

type routeMatch struct {
	Method yaml.Node // in a GRPCRoute it is a map
}

type policy struct {
	Metadata metadata
	Spec     struct {
		TargetRef       *target          `yaml:"targetRef"`
		TargetRefs      []target         `yaml:"targetRefs"`
		TargetSelectors []targetSelector `yaml:"targetSelectors"`
		MergeType       string           `yaml:"mergeType"`
		RateLimit       *struct {
			Type   string
			Global *struct{ Rules []yaml.Node }
		} `yaml:"rateLimit"`
	}
	// limits are the global rules of the policy, nil if it has none.
	limits []*limit
}

type target struct {
	Kind, Name  string
	SectionName string `yaml:"sectionName"`
}

type targetSelector struct {
	Kind       string
	Selector   selector  `yaml:",inline"`
	Namespaces yaml.Node // selects other namespaces; not supported
}

type selector struct {
	MatchLabels      map[string]string `yaml:"matchLabels"`
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	} `yaml:"matchExpressions"`
}

// matches reports whether a selector selects an object with the given labels.
func (s *selector) matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		if in := has && slices.Contains(e.Values, value); !map[string]bool{
			"In": in, "NotIn": !in, "Exists": has, "DoesNotExist": !has,
		}[e.Operator] {
			return false
		}
	}
	return true
}

// Add adds an object at pos. It returns false for kinds from which no rules are made. The lines and
// columns of the object's nodes must refer to pos.File.
func (o *Objects) Add(version, kind string, pos rules.Pos, n *yaml.Node) bool {
	group, _, _ := strings.Cut(version, "/")
	var read *metadata
	switch {
	case group == gatewayGroup && kind == "Gateway":
		if g := new(gateway); o.load(n, pos, g) {
			read = &g.Metadata
			g.Spec.Listeners = slices.DeleteFunc(g.Spec.Listeners, func(l *listener) bool { return l == nil })
			for _, l := range g.Spec.Listeners {
				l.gateway = g.Metadata.fullName()
			}
			o.gateways = append(o.gateways, g)
		}
	case group == gatewayGroup && (kind == "HTTPRoute" || kind == "GRPCRoute"):
		if r := new(route); o.load(n, pos, r) {
			read = &r.Metadata
			o.routes = append(o.routes, r)
		}
	case group == policyGroup && kind == "BackendTrafficPolicy":
		if p := new(policy); o.load(n, pos, p) {
			read = &p.Metadata
			o.policies = append(o.policies, p)
			o.readLimits(p, pos.File)
		}
	case version == "v1" && kind == "Namespace":
		var space struct{ Metadata metadata }
		if o.load(n, pos, &space) {
			if o.namespaces == nil {
				o.namespaces = map[string]map[string]string{}
			}
			o.namespaces[space.Metadata.Name] = space.Metadata.Labels
			read = &space.Metadata
		}
	case strings.HasSuffix(kind, "ListenerSet") || group == policyGroup && kind == "HTTPRouteFilter":
		var other struct {
			Metadata metadata
			Spec     struct{ Matches []yaml.Node }
		}
		if o.load(n, pos, &other) {
			read = &other.Metadata
			if kind != "HTTPRouteFilter" || len(other.Spec.Matches) > 0 {
				o.addUnread(pos, kind+" "+read.fullName().String())
			}
		}
	default:
		return false
	}
	if read != nil {
		read.pos = pos
		if o.first == "" || strings.HasPrefix(o.first, "Namespace ") {
			o.first = kind + " " + read.Name
			o.firstAt = pos
		}
	}
	return true
}

// addUnread records an object or field that is not supported.
func (o *Objects) addUnread(pos rules.Pos, name string) {
	o.unread = append(o.unread, name)
	o.unreadAt = pos
}

// unknownField matches the error for an unknown field.
var unknownField = regexp.MustCompile(`^field (\S+) not found in type .*$`)

// load decodes a node into v. It returns false if it reported errors.
func (o *Objects) load(n *yaml.Node, pos rules.Pos, v any, options ...yaml.Option) bool {
	err := n.Load(v, options...)
	var mistakes *yaml.LoadErrors
	switch {
	case err == nil:
		return true
	case errors.As(err, &mistakes):
		for _, m := range mistakes.Errors {
			at := rules.Pos{File: pos.File, Line: m.Mark.Line, Col: m.Mark.Column}
			o.fail(at, "%s", unknownField.ReplaceAllString(m.Message,
				`unknown field "$1"; see Envoy Gateway's API for the known ones`))
		}
	default:
		o.fail(pos, "%v", err)
	}
	return false
}

func (o *Objects) fail(pos rules.Pos, format string, args ...any) {
	o.diagnostics = append(o.diagnostics,
		rules.Diagnostic{Pos: pos, Severity: rules.Error, Message: fmt.Sprintf(format, args...)})
}

func (o *Objects) warn(pos rules.Pos, format string, args ...any) {
	o.diagnostics = append(o.diagnostics, rules.Diagnostic{
		Pos: pos, Severity: rules.Warning, Code: rules.NoEffect, Message: fmt.Sprintf(format, args...),
	})
}
