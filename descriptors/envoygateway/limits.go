package envoygateway

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// limit is a rule of a policy.
type limit struct {
	// name is the name of the policy and the index of the rule, which is unique.
	name string
	// policy is the name of the policy, which is the domain of a shared rule.
	policy string
	pos    rules.Pos
	shared bool
	// headers and queries have an element for each match: true if each value has its own limit.
	headers, queries []bool
	methods, path    bool
	// cidr is the value of masked_remote_address, or empty. perIP is true if each address in it has
	// its own limit.
	cidr      string
	perIP     bool
	shadow    bool
	rateLimit rules.Limit
}

// ruleSpec is the YAML of a rule.
type ruleSpec struct {
	ClientSelectors []struct {
		Headers     []match
		Methods     []match
		Path        *match
		SourceCIDR  *match  `yaml:"sourceCIDR"`
		QueryParams []match `yaml:"queryParams"`
	} `yaml:"clientSelectors"`
	Limit struct {
		Requests     *int64
		Unit         string
		FromMetadata yaml.Node `yaml:"fromMetadata"` // not in the rules: Envoy sends it as an override
	}
	Cost              yaml.Node // not in the rules: Envoy sends it as hits addends
	Shared            bool
	ShadowMode        bool      `yaml:"shadowMode"`
	XRateLimitHeaders yaml.Node `yaml:"xRateLimitHeaders"`
}

type match struct {
	Type, Name string
	Value      *string
	Invert     bool
}

func (m *match) text() string {
	if m.Value == nil {
		return "no value"
	}
	return *m.Value
}

// readLimits reads the global rules of a policy.
func (o *Objects) readLimits(p *policy, file string) {
	rl := p.Spec.RateLimit
	if rl == nil || rl.Global == nil || rl.Type == "Local" {
		return
	}
	p.limits = []*limit{}
	for _, s := range p.Spec.TargetSelectors {
		if !s.Namespaces.IsZero() {
			o.addUnread(rules.Pos{File: file, Line: s.Namespaces.Line, Col: s.Namespaces.Column},
				"targetSelectors with namespaces")
		}
	}
	for i := range rl.Global.Rules {
		n := &rl.Global.Rules[i]
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		pos := rules.Pos{File: file, Line: n.Line, Col: n.Column}
		var w ruleSpec
		if !o.load(n, pos, &w, yaml.WithKnownFields()) {
			continue
		}
		policy := p.Metadata.fullName().String()
		l := &limit{
			name: fmt.Sprintf("%s/rule/%d", policy, i), policy: policy, pos: pos, shared: w.Shared, shadow: w.ShadowMode,
		}
		if err := l.read(&w); err != nil {
			o.fail(pos, "rule %d of BackendTrafficPolicy %s: %v; Envoy Gateway responds 500 on its routes", i, policy,
				err)
			continue
		}
		o.warnOfDropped(pos, &w)
		p.limits = append(p.limits, l)
	}
}

// warnOfDropped warns of the selectors that Envoy Gateway drops: it keeps one sourceCIDR and one
// path for each rule, those of the last clientSelector that has them.
func (o *Objects) warnOfDropped(pos rules.Pos, w *ruleSpec) {
	last := map[string]int{}
	for i := len(w.ClientSelectors) - 1; i >= 0; i-- {
		s := &w.ClientSelectors[i]
		for _, field := range []struct {
			name  string
			match *match
		}{{"path", s.Path}, {"sourceCIDR", s.SourceCIDR}} {
			switch kept, found := last[field.name]; {
			case field.match == nil:
			case !found:
				last[field.name] = i
			default:
				o.warn(pos, "clientSelectors[%d].%s (%s) has no effect: Envoy Gateway keeps only the last %s of a rule, here clientSelectors[%d]; write a rule for each",
					i, field.name, rules.Shorten(field.match.text()), field.name, kept)
			}
		}
	}
}

// read sets l from a rule. The error is why Envoy Gateway rejects it.
func (l *limit) read(w *ruleSpec) error {
	for _, s := range w.ClientSelectors {
		if len(s.Headers)+len(s.Methods)+len(s.QueryParams) == 0 && s.Path == nil && s.SourceCIDR == nil {
			return errors.New("a clientSelector without headers, methods, path, sourceCIDR or queryParams")
		}
		for _, m := range s.Headers {
			if err := m.check("header"); err != nil {
				return err
			}
			l.headers = append(l.headers, m.Type == "Distinct")
		}
		for _, m := range s.QueryParams {
			if err := m.check("query parameter"); err != nil {
				return err
			}
			l.queries = append(l.queries, m.Type == "Distinct")
		}
		l.methods = l.methods || len(s.Methods) > 0
		if m := s.Path; m != nil {
			l.path = true
			if err := m.checkPattern(); err != nil {
				return err
			}
		}
		if m := s.SourceCIDR; m != nil {
			if m.Value == nil {
				return errors.New("sourceCIDR has no value")
			}
			_, network, err := net.ParseCIDR(*m.Value)
			if err != nil {
				return fmt.Errorf("sourceCIDR %q is not a range of addresses such as 10.0.0.0/8", *m.Value)
			}
			l.cidr = network.String()
			l.perIP = m.Type == "Distinct"
			if m.Invert {
				l.cidr = "invert:" + l.cidr
			}
		}
	}
	return l.readRateLimit(w)
}

// readRateLimit sets l.rateLimit from a rule.
func (l *limit) readRateLimit(w *ruleSpec) error {
	unit, known := rules.UnitNamed(w.Limit.Unit)
	switch n := w.Limit.Requests; {
	case !known:
		return fmt.Errorf("limit.unit %q must be Second, Minute, Hour, Day, Week, Month or Year", w.Limit.Unit)
	case n == nil || *n < 0 || *n > math.MaxUint32:
		return fmt.Errorf("limit.requests must be a number from 0 to %d", uint32(math.MaxUint32))
	default:
		l.rateLimit = rules.Limit{Pos: l.pos, RequestsPerUnit: uint32(*n), Unit: unit, UnitMultiplier: 1}
		return nil
	}
}

// check checks a match by name.
func (m *match) check(kind string) error {
	switch {
	case m.Name == "":
		return fmt.Errorf("a %s match has no name", kind)
	case m.Type == "Distinct" && (m.Value != nil || m.Invert):
		return fmt.Errorf("the Distinct match of %s %q must have neither value nor invert", kind, m.Name)
	case m.Type == "Distinct":
		return nil
	case m.Type != "" && m.Type != "Exact" && m.Type != "RegularExpression":
		return fmt.Errorf("type %q of %s %q must be Exact, RegularExpression or Distinct", m.Type, kind, m.Name)
	case m.Value == nil:
		return fmt.Errorf("the match of %s %q has no value", kind, m.Name)
	}
	return m.checkPattern()
}

// checkPattern checks the regular expression of a match.
func (m *match) checkPattern() error {
	if m.Type != "RegularExpression" || m.Value == nil {
		return nil
	}
	if _, err := regexp.Compile(*m.Value); err != nil {
		return fmt.Errorf("value %q: %w", *m.Value, err)
	}
	return nil
}

// chain returns the chain of descriptors for a rule; the last one has the limit. number is the
// index of the rule in its domain.
func (l *limit) chain(number int) rules.Descriptor {
	var all []rules.Descriptor
	add := func(key string, hasValue bool) {
		d := rules.Descriptor{Pos: l.pos, Key: key}
		if hasValue {
			d.Value = key
		}
		all = append(all, d)
	}
	key := func(format string, args ...any) string {
		return fmt.Sprintf("rule-%d-", number) + fmt.Sprintf(format, args...)
	}
	for i, distinct := range l.headers {
		add(key("match-%d", i), !distinct)
	}
	if l.methods {
		add(key("method"), true)
	}
	if l.path {
		add(key("path"), true)
	}
	if l.cidr != "" {
		all = append(all, rules.Descriptor{Pos: l.pos, Key: "masked_remote_address", Value: l.cidr})
		if l.perIP {
			add("remote_address", false)
		}
	}
	for i, distinct := range l.queries {
		add(key("match-%d", len(l.headers)+i), !distinct)
	}
	if len(all) == 0 {
		add(key("match--1"), true)
	}
	last := len(all) - 1
	all[last].RateLimits = []rules.Limit{l.rateLimit}
	all[last].ShadowMode = rules.TrueOrNil(l.shadow)
	for i := last; i > 0; i-- {
		all[i-1].Descriptors = []rules.Descriptor{all[i]}
	}
	return all[0]
}
