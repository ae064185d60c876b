package descriptors

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// metadataKeys are what a reply's dynamic metadata has beside leases.
var metadataKeys = []string{"domain", "descriptors", "hitsAddend", "metadata", "sluice"}

// leasing is a limit that gives leases.
type leasing struct {
	name     string
	pos      rules.Pos
	path     func() string
	defaults *rules.DefaultItem // that gave it its words, nil if none did
}

// lends keeps which limits of a rule give leases. checkLeases does the rest once all of the domain are known.
func (c *compiler) lends(r *Rule, cfg *rules.Descriptor, defaults *rules.DefaultItem) {
	for i := range cfg.RateLimits {
		l := &cfg.RateLimits[i]
		if p := l.Policy(); l.Unlimited || !p.UsesLeases() {
			continue
		}
		r.ensureRare().leases = true
		c.leasing = append(c.leasing, leasing{l.Name, l.Pos, func() string { return limitPath(r.domain, r.node, cfg.List, i) }, defaults})
	}
}

// checkLeases checks that the limits of a domain that give leases have names of their own, and such as Envoy can read.
func (c *compiler) checkLeases() {
	byName := map[string]*leasing{}
	for i := range c.leasing {
		l := &c.leasing[i]
		fail := func(format string, args ...any) {
			if l.defaults != nil {
				c.unfit(l.defaults, l.path(), l.pos, fmt.Sprintf(format, args...))
			} else {
				c.fail(l.pos, l.path(), format, args...)
			}
		}
		name, first := rules.Shorten(l.name), byName[l.name]
		switch {
		case l.name == "":
			fail(`"name" is missing: Envoy brings a lease back that it finds under the limit's name in the dynamic metadata; add one, such as "name: streams"`)
		case slices.Contains(metadataKeys, l.name):
			fail("name %q is taken: the dynamic metadata has it for something else (%s); choose another", name, strings.Join(metadataKeys, ", "))
		case !rules.IsLeaseName(l.name):
			fail(`name %q cannot stand in Envoy's %%DYNAMIC_METADATA(...)%%: leave out spaces and : %% ( ) "`, name)
		case first != nil:
			fail("name %q is that of %s at %s, too: of two leases under one name in the dynamic metadata one is lost; choose another", name, first.path(), first.pos)
		default:
			byName[l.name] = l
		}
	}
	for i := range c.leasing {
		l := &c.leasing[i]
		if first := byName[numbered.ReplaceAllString(l.name, "")]; first != nil && first.name != l.name {
			c.fail(l.pos, l.path(), "name %q is what a second lease of %q in one request is called (%s at %s); choose another that does not end in a dot and a number",
				rules.Shorten(l.name), rules.Shorten(first.name), first.path(), first.pos)
		}
	}
	c.leasing = nil
}

// numbered is the end of the name under which a second lease of a limit is told, or a third.
var numbered = regexp.MustCompile(`\.([2-9]|[1-9][0-9]+)$`)
