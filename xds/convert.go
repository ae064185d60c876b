package xds

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// maxDepth bounds the nesting of descriptors and of values in metadata, as in files.
const maxDepth = 100

// build turns the resources of one response into rules. The Set is nil if a diagnostic is an error.
func build(resources []*anypb.Any, opt descriptors.Options) (*descriptors.Set, rules.Diagnostics) {
	var c converter
	configs := make([]rules.Config, 0, len(resources))
	for i, r := range resources {
		if c.found.Full() {
			break
		}
		if config, ok := c.resource(i, r); ok {
			configs = append(configs, config)
		}
	}
	// Servers send resources in any order. Sorting gives merged domains the same order of wildcards
	// each time.
	slices.SortStableFunc(configs, func(a, b rules.Config) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Domain, b.Domain))
	})
	return descriptors.Build(configs, c.found.All, nil, opt)
}

// converter turns resources into rules. It checks only what depends on the protobuf encoding;
// Compile checks the rest.
type converter struct {
	pos   rules.Pos // position of the current resource
	found rules.Findings
}

// report reports an error, or a warning if it has a code.
func (c *converter) report(code rules.Code, path, format string, args ...any) {
	s := rules.Error
	if code != "" {
		s = rules.Warning
	}
	c.found.Add(rules.Diagnostic{
		Pos: c.pos, Severity: s, Code: code, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// resource converts resource i of a response. If ok is false it reported an error.
func (c *converter) resource(i int, r *anypb.Any) (config rules.Config, ok bool) {
	c.pos = rules.Pos{File: fmt.Sprintf("xds:resource %d", i+1)}
	if r.GetTypeUrl() != TypeURL {
		c.report("", "", "the resource is of type %q; it must be %s", rules.Shorten(r.GetTypeUrl()), TypeURL)
		return config, false
	}
	var m ratelimitv3.RateLimitConfig
	if err := proto.Unmarshal(r.GetValue(), &m); err != nil {
		c.report("", "", "the resource is not a RateLimitConfig: %v", err)
		return config, false
	}
	switch {
	case m.GetName() != "":
		c.pos.File = "xds:" + m.GetName()
	case m.GetDomain() != "":
		c.pos.File = "xds:" + m.GetDomain()
	}
	return rules.Config{
		Pos: c.pos, Domain: m.GetDomain(),
		Descriptors: c.descriptors(rules.DomainPath(m.GetDomain()), m.GetDescriptors(), 1),
	}, true
}

func (c *converter) descriptors(parent string, ms []*ratelimitv3.RateLimitDescriptor, depth int) []rules.Descriptor {
	if len(ms) == 0 {
		return nil
	}
	if depth > maxDepth {
		c.report("", "", "descriptors are nested deeper than %d levels", maxDepth)
		return nil
	}
	configs := make([]rules.Descriptor, len(ms))
	for i, m := range ms {
		path := rules.Level{Key: m.GetKey(), Value: m.GetValue()}.Below(parent)
		configs[i] = rules.Descriptor{
			Pos: c.pos, Key: m.GetKey(), Value: m.GetValue(),
			ShadowMode: rules.TrueOrNil(m.GetShadowMode()), QuotaMode: m.GetQuotaMode(), DetailedMetric: rules.TrueOrNil(m.GetDetailedMetric()),
			Metadata:    c.metadata(path, m.GetMetadata()),
			Descriptors: c.descriptors(path, m.GetDescriptors(), depth+1),
		}
		if limit := m.GetRateLimit(); limit != nil {
			configs[i].RateLimits = []rules.Limit{c.limit(path+" > rate_limit", limit)}
		}
	}
	return configs
}

func (c *converter) limit(path string, m *ratelimitv3.RateLimitPolicy) rules.Limit {
	unit := rules.Unit(m.GetUnit())
	l := rules.Limit{Pos: c.pos, Unlimited: m.GetUnlimited(), UnitMultiplier: 1, Name: m.GetName()}
	switch {
	case !l.Unlimited:
		l.Unit = unit
		l.RequestsPerUnit = m.GetRequestsPerUnit()
	case unit.Seconds() > 0:
		c.report("", path, "unlimited excludes the unit %s; remove one of them", m.GetUnit())
	case unit != 0:
		c.report(rules.NoEffect, path, "the unit has no effect with unlimited, and %d is not a unit", unit)
	}
	if mistake := rules.NameMistake(l.Name); mistake != "" {
		c.report(rules.UnsafeName, path, "%s", mistake)
	}
	for _, r := range m.GetReplaces() {
		l.Replaces = append(l.Replaces, r.GetName())
	}
	return l
}

func (c *converter) metadata(path string, m *structpb.Struct) map[string]any {
	if len(m.GetFields()) == 0 {
		return nil
	}
	if nestsDeeper(structpb.NewStructValue(m), maxDepth) {
		c.report("", path+" > metadata", "maps and lists are nested deeper than %d levels", maxDepth)
		return nil
	}
	return m.AsMap()
}

// nestsDeeper reports whether maps and lists are nested deeper than levels.
func nestsDeeper(v *structpb.Value, levels int) bool {
	if levels < 0 {
		return true
	}
	for _, f := range v.GetStructValue().GetFields() {
		if nestsDeeper(f, levels-1) {
			return true
		}
	}
	return slices.ContainsFunc(v.GetListValue().GetValues(),
		func(e *structpb.Value) bool { return nestsDeeper(e, levels-1) })
}
