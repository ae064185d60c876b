package rulefile

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// algorithm reads the field algorithm. It returns 0 if it reported an error.
func (p *parser) algorithm(path string, f field) limiter.Algorithm {
	name, ok := p.text(path, f)
	if !ok {
		return 0
	}
	a, ok := rules.AlgorithmNamed(name)
	if ok {
		return a
	}
	allowed := rules.AlgorithmNames()
	p.fail(path, f.value, "unknown algorithm %q%s (allowed: %s)", rules.Shorten(name), rules.DidYouMean(name, allowed),
		strings.Join(allowed, ", "))
	return 0
}

// optional reads an optional number. It returns nil if it reported an error.
func (p *parser) optional(path string, f field, smallest, largest int64) *uint32 {
	if n, ok := p.number(path, f, smallest, largest); ok {
		return &n
	}
	return nil
}

// maxWait reads the field max_wait. It returns nil if it reported an error.
func (p *parser) maxWait(path string, f field) *time.Duration {
	if f.value.Kind == yaml.ScalarNode {
		s := resolveScalar(f.value)
		d, err := time.ParseDuration(s.text)
		if err == nil && d >= 0 && d <= rules.MaxMaxWait {
			return &d
		}
	}
	p.fail(path, f.value, "%q must be a duration from 0s to 60s, such as 50ms or 1.5s, not %s", f.name,
		kindName(f.value))
	return nil
}

// checkAlgorithmFields reports the mistakes in l. It returns true if there are none.
func (p *parser) checkAlgorithmFields(b *limitBlock, l *rules.Limit) bool {
	if slices.Contains(b.suppressed, "algorithm") {
		return false // without an algorithm, the valid fields are unknown
	}
	mistakes := l.Mistakes()
	for _, m := range mistakes {
		if m.Field == "reserve" && slices.Contains(b.suppressed, m.Field) {
			continue
		}
		at := b.node
		if f, ok := b.given[m.Field]; ok {
			at = f.value
			if m.Misplaced {
				at = f.key
			}
		}
		p.fail(b.path, at, "%s", m.Message)
	}
	if len(mistakes) > 0 {
		return false
	}
	switch delays := rules.ValueOr(l.MaxWait, 0) > 0; {
	case l.MaxWaiting != nil && !delays:
		p.warn(rules.NoEffect, b.path, b.given["max_waiting"].key, `"max_waiting" has no effect without "max_wait"`)
	case delays && rules.ValueOr(l.MaxWaiting, rules.DefaultMaxWaiting) == 0:
		p.warn(rules.NoEffect, b.path, b.given["max_waiting"].key,
			`"max_waiting" is 0, so no request waits and "max_wait" has no effect`)
	}
	return true
}

// timezone reads the field timezone. It returns "" if it reported an error.
func (p *parser) timezone(path string, f field) string {
	name, ok := p.text(path, f)
	if !ok {
		return ""
	}
	if name == "" {
		p.fail(path, f.value, `"timezone" is empty; remove it for UTC`)
	} else if wrong := rules.ZoneMistake(name); wrong != "" {
		p.fail(path, f.value, "%s", wrong)
		return ""
	}
	return name
}
