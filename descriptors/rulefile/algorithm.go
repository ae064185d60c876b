package rulefile

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// optional reads an optional number. It returns nil if it reported an error.
func (p *parser) optional(path string, f field, smallest, largest int64) *uint32 {
	if n, ok := p.number(path, f, smallest, largest); ok {
		return &n
	}
	return nil
}

// checkAlgorithmFields reports the mistakes in l. It returns true if there are none.
func (p *parser) checkAlgorithmFields(b *limitBlock, l *rules.Limit) bool {
	if slices.Contains(b.suppressed, "algorithm") {
		return false // without an algorithm, the valid fields are unknown
	}
	mistakes := l.Mistakes()
	for _, m := range mistakes {
		if strings.HasPrefix(m.Field, "reserve") && slices.Contains(b.suppressed, "reserve") {
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
