package descriptors

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// metadataKeys are the keys of a response's dynamic metadata other than leases.
var metadataKeys = []string{"domain", "descriptors", "hitsAddend", "metadata", "sluice", "denied_by", "soft"}

// leaseLimit is a limit that grants leases.
type leaseLimit struct {
	name     string
	pos      rules.Pos
	path     func() string
	defaults *rules.DefaultItem // the item that set its fields, or nil
}

// collectLeaseLimits records the limits of a rule that grant leases, for checkLeases.
func (c *compiler) collectLeaseLimits(r *Rule, cfg *rules.Descriptor, defaults *rules.DefaultItem) {
	for i := range cfg.RateLimits {
		l := &cfg.RateLimits[i]
		if p := l.Policy(); l.Unlimited || !p.UsesLeases() {
			continue
		}
		r.ensureOptional().leases = true
		c.leaseLimits = append(c.leaseLimits,
			leaseLimit{l.Name, l.Pos, func() string { return limitPath(r.domain, r.node, cfg.List, i) }, defaults})
	}
}

// checkLeases checks that the lease-granting limits of a domain have unique names that Envoy can
// read.
func (c *compiler) checkLeases() {
	byName := map[string]*leaseLimit{}
	for i := range c.leaseLimits {
		l := &c.leaseLimits[i]
		fail := func(format string, args ...any) {
			if l.defaults != nil {
				c.failDefaults(l.defaults, l.path(), l.pos, fmt.Sprintf(format, args...))
			} else {
				c.fail(l.pos, l.path(), format, args...)
			}
		}
		name := rules.Shorten(l.name)
		first := byName[l.name]
		switch {
		case l.name == "":
			fail(`"name" is missing: Envoy returns the lease that it finds under the limit's name in the dynamic metadata; add one, such as "name: streams"`)
		case slices.Contains(metadataKeys, l.name):
			fail("name %q is reserved: the dynamic metadata uses it for other data (%s); choose another", name,
				strings.Join(metadataKeys, ", "))
		case !rules.IsLeaseName(l.name):
			fail(`name %q cannot be used in Envoy's %%DYNAMIC_METADATA(...)%%: remove spaces and : %% ( ) "`, name)
		case first != nil:
			fail("name %q is also that of %s at %s: of two leases with the same name in the dynamic metadata, one is lost; choose another", name, first.path(), first.pos)
		default:
			byName[l.name] = l
		}
	}
	for i := range c.leaseLimits {
		l := &c.leaseLimits[i]
		if first := byName[numbered.ReplaceAllString(l.name, "")]; first != nil && first.name != l.name {
			c.fail(l.pos, l.path(), "name %q is reserved for a second lease of %q (%s at %s) in one request; choose one that does not end in a dot and a number",
				rules.Shorten(l.name), rules.Shorten(first.name), first.path(), first.pos)
		}
	}
	c.leaseLimits = nil
}

// numbered matches the suffix of the names under which a limit's second and further leases in one
// response are sent.
var numbered = regexp.MustCompile(`\.([2-9]|[1-9][0-9]+)$`)
