package descriptors

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// everyDomain is the domain of defaults that hold for all of them.
const everyDomain = "*"

// Defaults are words for rules that come without any, from a file of their own; see
// [ParseDefaults]. They are immutable, and nil Defaults give nothing.
//
// A rule gets the words of one item, the most specific that fits it: that of its
// path, else of its name, else the one for all; of two of a kind that of its own
// domain. A rule that has one of these words itself keeps all of its own, as do
// unlimited rules and rate_limits lists. The domain's words hold where no
// [Config] of the domain says them.
type Defaults struct {
	sum [sha256.Size]byte // of the content
	// domains has the documents by the domain that they are for.
	domains map[string]*domainDefaults
}

// domainDefaults is one document of defaults.
type domainDefaults struct {
	pos          Pos
	domain       string
	allOrNothing *bool
	maxCounters  int64 // 0 where the document does not say
	entries      []*defaultEntry
	byPath       map[string]*defaultEntry // by pathID
	byName       map[string]*defaultEntry
	wide         *defaultEntry // for all rules, or nil
}

// defaultEntry is one item of defaults: words for the rule of a path, for those of
// a name, or for all.
type defaultEntry struct {
	pos   Pos
	at    string // the place in the tree, for diagnostics
	path  []levelText
	name  string
	words RateLimitConfig // only those that the item gives
}

type levelText struct{ key, value string }

// pathID tells paths apart, whatever is in their keys and values.
func pathID(levels []levelText) string {
	var b strings.Builder
	for _, l := range levels {
		b.WriteString(strconv.Quote(l.key) + "=" + strconv.Quote(l.value) + ",")
	}
	return b.String()
}

// target says which rules an item is for.
func (e *defaultEntry) target() string {
	if e.path != nil {
		return fmt.Sprintf("the path %q", shorten(e.text()))
	}
	return fmt.Sprintf("the name %q", shorten(e.name))
}

// text is the path or name of the rules that an item is for.
func (e *defaultEntry) text() string {
	if e.path == nil {
		return e.name
	}
	levels := make([]string, len(e.path))
	for i, l := range e.path {
		levels[i] = (&node{key: l.key, value: l.value}).text()
	}
	return strings.Join(levels, " > ")
}

// of returns the documents for a domain, its own first.
func (d *Defaults) of(domain string) []*domainDefaults {
	if d == nil {
		return nil
	}
	var all []*domainDefaults
	if own := d.domains[domain]; own != nil {
		all = append(all, own)
	}
	if every := d.domains[everyDomain]; every != nil && domain != everyDomain {
		all = append(all, every)
	}
	return all
}

// fitting returns the items that fit a rule, the one that holds first.
func (d *Defaults) fitting(domain, path, name string) []*defaultEntry {
	var all []*defaultEntry
	documents := d.of(domain)
	for _, find := range []func(dd *domainDefaults) *defaultEntry{
		func(dd *domainDefaults) *defaultEntry { return dd.byPath[path] },
		func(dd *domainDefaults) *defaultEntry { return dd.byName[name] },
		func(dd *domainDefaults) *defaultEntry { return dd.wide },
	} {
		for _, dd := range documents {
			if e := find(dd); e != nil {
				all = append(all, e)
			}
		}
	}
	return all
}

// ownWords reports whether l has one of the words that defaults give.
func (l *RateLimitConfig) ownWords() bool {
	return l.Algorithm != 0 || l.UnitMultiplier > 1 || l.CountRefused != nil || l.SubWindows != nil ||
		l.Burst != nil || l.Slack != nil || l.MaxWait != nil || l.MaxWaiting != nil
}

// with returns l with the words of e.
func (l *RateLimitConfig) with(e *defaultEntry) RateLimitConfig {
	given, w := *l, &e.words
	given.Algorithm, given.CountRefused, given.UnitMultiplier = w.Algorithm, w.CountRefused, w.UnitMultiplier
	given.SubWindows, given.Burst = w.SubWindows, w.Burst
	given.Slack, given.MaxWait, given.MaxWaiting = w.Slack, w.MaxWait, w.MaxWaiting
	return given
}

// entryUse is what a compiler notes of an item of defaults.
type entryUse struct {
	fits, holds bool
	// wrong is the index of the diagnostic that says for which rule it cannot hold,
	// and more how many others there are.
	wrong, more int
}

// use returns what is noted of e.
func (c *compiler) use(e *defaultEntry) *entryUse {
	if c.uses == nil {
		c.uses = map[*defaultEntry]*entryUse{}
	}
	u := c.uses[e]
	if u == nil {
		u = &entryUse{wrong: -1}
		c.uses[e] = u
	}
	return u
}

// withDefaults returns cfg, or what it comes to with the words of the item of
// defaults that holds for it.
func (c *compiler) withDefaults(d *domain, n *node, cfg *DescriptorConfig) (*DescriptorConfig, *defaultEntry) {
	if c.opt.Defaults == nil || len(cfg.RateLimits) == 0 {
		return cfg, nil
	}
	var path []levelText
	for _, n := range n.lineage() {
		path = append(path, levelText{n.key, n.value})
	}
	l := cfg.RateLimits[0]
	fitting := c.opt.Defaults.fitting(d.name, pathID(path), l.Name)
	for _, e := range fitting {
		c.use(e).fits = true
	}
	if len(fitting) == 0 || cfg.List || l.Unlimited || l.ownWords() || l.Unit.Seconds() == 0 {
		return cfg, nil
	}
	e := fitting[0]
	u := c.use(e)
	u.holds = true
	l = l.with(e)
	if wrong := l.wrongWords(); wrong != "" {
		if u.wrong >= 0 {
			u.more++
		} else {
			u.wrong = len(c.diagnostics)
			c.fail(e.pos, e.at, "these words do not fit the rule %s at %s: %s", nodePath(d, n), l.Pos, wrong)
		}
		return cfg, nil
	}
	given := *cfg
	given.RateLimits = []RateLimitConfig{l}
	return &given, e
}

// wrongWords says what keeps the words of a limit from holding together; it is
// empty if nothing does.
func (l *RateLimitConfig) wrongWords() string {
	if longest := int64(limiter.MaxWindow / time.Second); l.window() > longest {
		return fmt.Sprintf("a window of %d %ss is longer than 10 years; the highest unit_multiplier of unit %s is %d",
			l.UnitMultiplier, l.Unit, l.Unit, longest/l.Unit.Seconds())
	}
	var all []string
	for _, m := range l.mistakes() {
		all = append(all, m.message)
	}
	return strings.Join(all, "; ")
}

// finishDefaults completes the diagnostics about defaults once all rules have been
// seen, and warns of items that hold for no rule.
func (c *compiler) finishDefaults() {
	if c.opt.Defaults == nil {
		return
	}
	for _, u := range c.uses {
		if u.wrong >= 0 && u.more > 0 {
			c.diagnostics[u.wrong].Message += fmt.Sprintf(" (and %d more rules)", u.more)
		}
	}
	if c.set.Empty() {
		return // there is nothing yet that they could be for
	}
	for _, name := range slices.Sorted(maps.Keys(c.opt.Defaults.domains)) {
		dd := c.opt.Defaults.domains[name]
		if name != everyDomain && c.set.domains[name] == nil {
			c.warn(dd.pos, domainPath(name), "no rules are for this domain, so that its defaults have no effect%s", didYouMean(nearest(name, c.set.names)))
			continue
		}
		for _, e := range dd.entries {
			c.warnUnused(name, e)
		}
	}
}

// warnUnused warns of an item of defaults, for a domain or all, that holds for no
// rule.
func (c *compiler) warnUnused(domain string, e *defaultEntry) {
	u := c.use(e)
	switch {
	case u.holds || e == c.opt.Defaults.domains[domain].wide:
	case u.fits:
		c.warn(e.pos, e.at, "no rule gets these words: those of %s are unlimited, a list, have words of their own, or have an item that comes before", e.target())
	default:
		candidates := map[string]bool{}
		for _, l := range c.set.Limits {
			switch {
			case domain != everyDomain && domain != l.Rule.Domain:
			case e.path != nil:
				candidates[l.Rule.Path] = true
			case l.Name != "":
				candidates[l.Name] = true
			}
		}
		c.warn(e.pos, e.at, "no rule has %s%s", e.target(), didYouMean(nearest(e.text(), slices.Sorted(maps.Keys(candidates)))))
	}
}

// didYouMean offers what is similar, if anything is.
func didYouMean(similar []string) string {
	if len(similar) == 0 {
		return ""
	}
	quoted := make([]string, len(similar))
	for i, s := range similar {
		quoted[i] = strconv.Quote(s)
	}
	return "; did you mean " + strings.Join(quoted, ", ") + "?"
}
