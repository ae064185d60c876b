//go:build more

package envoyconfig_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Messages whose absent fields are set, besides the change of those that are present.
var completed = []string{
	"envoy.config.route.v3.RateLimit", "envoy.extensions.filters.http.ratelimit.v3.", "envoy.config.route.v3.HeaderMatcher", "envoy.config.route.v3.QueryParameterMatcher",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter", "envoy.type.matcher.v3.StringMatcher", "envoy.type.matcher.v3.AddressMatcher",
	"envoy.extensions.filters.http.header_to_metadata.v3.", "envoy.extensions.filters.http.set_metadata.v3.",
}

// completedFields are further absent fields that are set.
var completedFields = []string{"include_vh_rate_limits", "request_headers_to_remove", "internal_only_headers", "payload_in_metadata", "forward", "allow_missing"}

// unchanged are fields that no limit depends on: names that nothing refers to, addresses, and the parts of a token. The
// judge replaces timeouts.
var unchanged = []string{
	"address", "load_assignment", "failure_mode_deny_percent", "stat_prefix", "health_checks", "connect_timeout", "local_jwks", "issuer", "provider_name", "domains", "@type",
	"envoy.config.listener.v3.Listener.name", "envoy.config.listener.v3.Filter.name", "envoy.config.route.v3.Route.name", "envoy.config.route.v3.VirtualHost.name", "envoy.config.route.v3.RouteConfiguration.name",
	"envoy.config.cluster.v3.Cluster.name", "envoy.extensions.filters.http.ratelimit.v3.RateLimit.timeout",
}

// containers are messages whose fields are neither removed nor replaced as a whole.
var containers = []string{"envoy.config.bootstrap.", "envoy.config.listener.", "envoy.extensions.filters.network."}

// texts has the values that a field of text gets, by its name.
var texts = map[string][]string{
	"format": {
		"%REQ(x-user)%", "%REQ(x-none)%", "%BYTES_RECEIVED%", "%BYTES_SENT%", "%RESPONSE_CODE%", "%PROTOCOL%", "%DYNAMIC_METADATA(ns:cost)%", "%DYNAMIC_METADATA(ns:none)%",
		"0", "-1", "0.5", "1", "many", "%START_TIME(%s)%", "%ROUTE_NAME%", "%FILTER_STATE(none)%", "%REQUEST_DURATION%",
	},
	"disable_key":  {"key"},
	"request_type": {"internal", "external", "both", "none"},
	"prefix":       {"/none", "al", "/"},
	"domain":       {"other"},
	"cluster":      {"sluice"},
	"cluster_name": {"backend"},
	"header_name":  {":path", "host", "x-envoy-internal", "x_user", ":none"},
	"prefix_match": {"al"},
	"suffix_match": {"ce"},
}

// change is a change of one field.
type change struct {
	name  string
	apply func(bootstrap object)
}

// changer finds the changes of a configuration.
type changer struct {
	// place distinguishes changes of the same field that have different effects.
	place   place
	seen    map[string]bool
	changes []change
}

// variants returns the configurations that differ from a working one in one field.
func variants(t *testing.T) []variant {
	t.Helper()
	var all []variant
	seen := map[string]bool{}
	for _, w := range workingConfigurations {
		v := w.variant()
		c := changer{place: w.in, seen: seen}
		kind, err := protoregistry.GlobalTypes.FindMessageByName("envoy.config.bootstrap.v3.Bootstrap")
		if err != nil {
			t.Fatal(err)
		}
		c.walk(kind.Descriptor(), decode(v.bootstrap), nil)
		for _, changed := range c.changes {
			bootstrap := decode(v.bootstrap)
			changed.apply(bootstrap)
			text, err := json.Marshal(bootstrap)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != string(v.bootstrap) {
				all = append(all, variant{name: w.name + ": " + changed.name, bootstrap: text, rules: v.rules, requests: v.requests})
			}
		}
	}
	return all
}

func decode(text []byte) object {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		panic(err)
	}
	return o
}

// path leads to a field: names of fields and indices of lists.
type path []any

func (p path) then(next any) path { return append(slices.Clone(p), next) }

func (p path) String() string {
	var parts []string
	for _, part := range p {
		switch part {
		case "static_resources", "listeners", "filter_chains", "filters", "typed_config", "route_config", "virtual_hosts", "routes":
		default:
			if _, isIndex := part.(int); !isIndex || part != 0 {
				parts = append(parts, fmt.Sprint(part))
			}
		}
	}
	return strings.Join(parts, ".")
}

// at returns the value at a path.
func (p path) at(o object) any {
	var value any = o
	for _, part := range p {
		switch part := part.(type) {
		case string:
			fields, _ := value.(object)
			value = fields[part]
		case int:
			elements, _ := value.(list)
			value = elements[part]
		}
	}
	return value
}

// set sets the value at a path. A nil value removes it.
func (p path) set(o object, value any) {
	last := p[len(p)-1]
	switch parent := p[:len(p)-1].at(o).(type) {
	case object:
		name, _ := last.(string)
		if value == nil {
			delete(parent, name)
			return
		}
		parent[name] = value
	case list:
		index, _ := last.(int)
		if value == nil {
			p[:len(p)-1].set(o, slices.Delete(parent, index, index+1))
			return
		}
		parent[index] = value
	}
}

// add adds a change, unless another configuration had the same one.
func (c *changer) add(of protoreflect.FullName, at path, what string, apply func(object)) {
	key := fmt.Sprint(of, " ", what)
	if strings.HasPrefix(string(of), "envoy.config.route.v3.RateLimit") || of.Name() == "name" {
		key += string(c.place)
	}
	if !c.seen[key] {
		c.seen[key] = true
		c.changes = append(c.changes, change{at.String() + " " + what, apply})
	}
}

// put adds the change that sets a value.
func (c *changer) put(of protoreflect.FullName, at path, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	c.add(of, at, "= "+string(text), func(o object) { at.set(o, value) })
}

// walk adds the changes of the fields of a message.
func (c *changer) walk(d protoreflect.MessageDescriptor, o object, at path) {
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		if slices.Contains(unchanged, name) || slices.Contains(unchanged, string(f.FullName())) || name == "name" && c.place != perRoute && isOf(d, containers) {
			continue
		}
		here := at.then(name)
		value, present := o[name]
		if !present {
			if isOf(d, completed) || slices.Contains(completedFields, name) {
				c.absent(f, o, here)
			}
			continue
		}
		if !isOf(d, containers) || name == "use_remote_address" {
			c.add(f.FullName(), here, "removed", func(o object) { here.set(o, nil) })
		}
		if isOf(d, completed) {
			c.add(f.FullName(), here, "misspelt", func(o object) {
				at.then(name+"s").set(o, here.at(o))
				here.set(o, nil)
			})
		}
		c.present(f, value, here)
	}
}

// absent adds the values of a field that the configuration does not have. In a oneof, they replace the present one.
func (c *changer) absent(f protoreflect.FieldDescriptor, o object, at path) {
	others := func(o object) {
		if f.ContainingOneof() != nil && !f.HasOptionalKeyword() {
			all := f.ContainingOneof().Fields()
			for i := range all.Len() {
				at[:len(at)-1].then(string(all.Get(i).Name())).set(o, nil)
			}
		}
	}
	put := func(value any) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		c.add(f.FullName(), at, "= "+string(text), func(o object) {
			others(o)
			at.set(o, value)
		})
	}
	switch {
	case f.IsMap():
	case f.IsList():
		put(list{})
		if f.Kind() == protoreflect.StringKind {
			put(list{"x-user"})
		}
	default:
		for _, value := range c.values(f, nil) {
			put(value)
		}
	}
}

// present adds the other values of a field.
func (c *changer) present(f protoreflect.FieldDescriptor, value any, at path) {
	switch {
	case f.IsMap():
		all, _ := value.(object)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			c.add(f.FullName(), at, "without the element", func(o object) { at.then(key).set(o, nil) })
			c.add(f.FullName(), at, "with another key", func(o object) {
				at.then(key+"x").set(o, at.then(key).at(o))
				at.then(key).set(o, nil)
			})
			c.element(f.MapValue(), all[key], at.then(key))
		}
	case f.IsList():
		c.list(f, value, at)
	default:
		c.element(f, value, at)
	}
}

// list adds lists with fewer, more, or reordered elements.
func (c *changer) list(f protoreflect.FieldDescriptor, value any, at path) {
	all, _ := value.(list)
	// The elements of these lists differ in meaning.
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = strconv.Itoa(i)
		if o, ok := e.(object); ok && o["name"] != nil {
			names[i] = fmt.Sprint(o["name"])
		}
	}
	if isOf(f, containers) && f.Name() != "http_filters" {
		for i := range all {
			c.element(f, all[i], at.then(i))
		}
		return
	}
	length := fmt.Sprintf(" of %d", len(all))
	if f.Name() != "http_filters" { // without a filter, Envoy never responds
		c.put(f.FullName(), at, list{})
	}
	for i := range all {
		here := at.then(i)
		c.add(f.FullName(), at, "without "+names[i]+length, func(o object) { here.set(o, nil) })
		c.add(f.FullName(), at, "with "+names[i]+" twice"+length, func(o object) {
			now, _ := at.at(o).(list)
			at.set(o, slices.Insert(slices.Clone(now), i, clone(now[i])))
		})
		if i > 0 {
			c.add(f.FullName(), at, "with "+names[i-1]+" after "+names[i], func(o object) {
				now, _ := at.at(o).(list)
				now[i-1], now[i] = now[i], now[i-1]
			})
		}
		c.element(f, all[i], here)
	}
	if len(all) == 1 {
		c.add(f.FullName(), at, "as a single value", func(o object) {
			now, _ := at.at(o).(list)
			at.set(o, now[0])
		})
	}
}

func clone(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var copied any
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// element adds the other values of a single value.
func (c *changer) element(f protoreflect.FieldDescriptor, value any, at path) {
	o, isObject := value.(object)
	if f.Message() == nil || !isOf(f, containers) {
		for _, other := range c.values(f, value) {
			c.put(f.FullName(), at, other)
		}
	}
	if f.Message() == nil || !isObject || isValue(f.Message()) {
		return
	}
	if f.Message().FullName() == "google.protobuf.Any" {
		url, _ := o["@type"].(string)
		kind, err := protoregistry.GlobalTypes.FindMessageByURL(url)
		if err != nil {
			panic(err)
		}
		c.walk(kind.Descriptor(), o, at)
		return
	}
	c.walk(f.Message(), o, at)
}

// isOf reports whether a message has one of the names, or is in one of the packages.
func isOf(d protoreflect.Descriptor, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(string(d.FullName()), name) })
}

// isValue reports whether a message is written as a value in JSON.
func isValue(d protoreflect.MessageDescriptor) bool {
	name := string(d.FullName())
	return strings.HasPrefix(name, "google.protobuf.") && name != "google.protobuf.Any"
}

// values returns values of a field besides the present one, which is nil if there is none.
func (c *changer) values(f protoreflect.FieldDescriptor, present any) list {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return list{true, false, "yes"}
	case protoreflect.StringKind:
		return c.texts(f, present)
	case protoreflect.EnumKind:
		all := list{99, "NONE"}
		names := f.Enum().Values()
		for i := range names.Len() {
			all = append(all, string(names.Get(i).Name()))
		}
		if text, ok := present.(string); ok {
			all = append(all, strings.ToLower(text))
		}
		return all
	case protoreflect.MessageKind:
		return messageValues(f.Message(), present)
	case protoreflect.BytesKind, protoreflect.GroupKind:
		return nil
	default:
		return list{0, 1, 2, 8, -1, 0.5, "1", "one"}
	}
}

// texts returns other texts.
func (c *changer) texts(f protoreflect.FieldDescriptor, present any) list {
	var all list
	for _, text := range texts[string(f.Name())] {
		all = append(all, text)
	}
	switch text, ok := present.(string); {
	case !ok:
		return append(all, "", "x")
	case len(text) > 200:
		return all // code
	default:
		return append(all, "", 5, text+"x", strings.ToUpper(text), text+" ", strings.Replace(text, "-", "_", 1), strings.Replace(text, "e", " ", 1))
	}
}

// messageValues returns other values of a message.
func messageValues(d protoreflect.MessageDescriptor, present any) list {
	switch d.FullName() {
	case "google.protobuf.BoolValue":
		return list{true, false}
	case "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		return list{0, 1, 2, 24, 32, -1, "1"}
	case "google.protobuf.Duration":
		return list{"0s", "0.000001s", "-1s", "1", "3600s"}
	case "envoy.config.core.v3.RuntimeFractionalPercent":
		var all list
		for _, fraction := range []object{
			{}, {"numerator": 100}, {"numerator": 1}, {"numerator": 50}, {"numerator": 1, "denominator": "MILLION"}, {"numerator": 10000, "denominator": "TEN_THOUSAND"}, {"numerator": 200},
		} {
			all = append(all, object{"default_value": fraction}, object{"default_value": fraction, "runtime_key": "key"})
		}
		return append(all, object{}, object{"runtime_key": "key"})
	case "google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return nil
	default:
		if present == nil {
			return append(list{object{}}, filled[d.FullName()]...)
		}
		return list{object{}, "x", 5}
	}
}

// filled are values of messages that have an effect only with fields.
var filled = map[protoreflect.FullName]list{
	"envoy.config.route.v3.RateLimit.HitsAddend": {
		object{"number": 0},
		object{"number": 1},
		object{"number": 2},
		object{"number": 1, "is_negative_hits": true},
		object{"format": "%REQ(x-user)%"},
		object{"format": "%BYTES_RECEIVED%"},
		object{"format": "%RESPONSE_CODE%"},
	},
	"envoy.config.route.v3.RateLimit.Override": {
		object{"dynamic_metadata": object{"metadata_key": object{"key": "ns", "path": list{object{"key": "limit"}}}}},
	},
	"envoy.config.route.v3.RateLimit.Action.GenericKey":     {object{"descriptor_value": "a"}, object{"descriptor_key": "user", "descriptor_value": "a"}},
	"envoy.config.route.v3.RateLimit.Action.RequestHeaders": {object{"header_name": "x-none", "descriptor_key": "user"}, object{"header_name": ":authority", "descriptor_key": "user"}},
	"envoy.type.matcher.v3.RegexMatcher":                    {object{"regex": ".*"}, object{"regex": "a"}, object{"regex": "("}},
	"envoy.type.matcher.v3.StringMatcher":                   {object{"exact": ""}, object{"prefix": ""}, object{"exact": "Alice", "ignore_case": true}},
	"envoy.type.v3.Int64Range":                              {object{"start": 1, "end": 1}, object{"start": 1, "end": 2}},
}
