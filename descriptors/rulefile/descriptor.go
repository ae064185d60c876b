package rulefile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// descriptors reads a list of descriptors.
func (p *parser) descriptors(path string, f field) []rules.Descriptor {
	if isNull(f.value) {
		return nil
	}
	if f.value.Kind != yaml.SequenceNode {
		p.fail(path, f.value, `"descriptors" must be a list of maps, not %s`, kindName(f.value))
		return nil
	}
	if !p.enter(f.value) {
		return nil
	}
	defer p.leave()
	list := make([]rules.Descriptor, 0, len(f.value.Content))
	for i, item := range f.value.Content {
		if p.stopped {
			break
		}
		if d, ok := p.descriptor(path, i, item); ok {
			list = append(list, d)
		}
	}
	return list
}

// descriptor reads the i-th item of a list of descriptors.
func (p *parser) descriptor(path string, i int, item *yaml.Node) (d rules.Descriptor, ok bool) {
	n := p.follow(item)
	here := below(path, fmt.Sprintf("descriptors[%d]", i))
	if n.Kind != yaml.MappingNode {
		p.fail(here, item, `a descriptor must be a map with "key", not %s`, kindName(n))
		return d, false
	}
	if !p.enter(n) {
		return d, false
	}
	defer p.leave()
	fields := p.fields(here, n, wordText)
	path = descriptorPath(path, here, fields)

	d.Pos = p.pos(item)
	var single *limitBlock
	var several *field
	keyAt, keyOK := item, true
	flat := p.flatLimit(path, fields)
	for _, f := range fields {
		if flat[f.word] {
			continue
		}
		switch f.word {
		case "key":
			d.Key, keyOK = p.text(path, f)
			keyAt = f.at
		case "value":
			d.Value, _ = p.text(path, f)
		case "rate_limit":
			single = p.rateLimit(path, f, single)
		case "rate_limits":
			several = &f
			d.RateLimits = p.rateLimits(path, f)
			d.List = true
		case "descriptors":
			d.Descriptors = p.descriptors(path, f)
		case "shadow_mode":
			d.ShadowMode = p.bool(path, f)
		case "quota_mode":
			d.QuotaMode = p.bool(path, f)
		case "detailed_metric":
			d.DetailedMetric = p.bool(path, f)
		case "value_to_metric":
			d.ValueToMetric = p.bool(path, f)
		case "share_threshold":
			d.ShareThreshold = p.bool(path, f)
			if d.ShareThreshold && !strings.Contains(lastText(fields, "key")+lastText(fields, "value"), "*") {
				p.fail(path, f.key, `"share_threshold" needs a "*" in "value" or "key"; here they are %q and %q`,
					rules.Shorten(lastText(fields, "value")), rules.Shorten(lastText(fields, "key")))
			}
		case "metadata":
			d.Metadata = p.metadata(path, f, d.Metadata)
		default:
			keyOK = p.stray(path, descriptorWords, f) != "key" && keyOK
		}
	}
	if keyOK && d.Key == "" {
		p.fail(path, keyAt, `"key" is missing or empty; every descriptor needs one`)
	}
	if single != nil {
		limit, ok := p.limit(single)
		if several != nil {
			p.fail(path, several.key, `"rate_limit" and "rate_limits" exclude each other; move the one into the list`)
		} else if ok {
			d.RateLimits = []rules.Limit{limit}
		}
	}
	return d, true
}

// flatLimit reports a rate_limit that is empty because its words stand beside it rather
// than below. It returns the words that this explains: each by itself is only without
// effect, as in envoyproxy/ratelimit, but together they are a limit that is not there.
func (p *parser) flatLimit(path string, fields []field) map[string]bool {
	var empty *field
	flat, names := map[string]bool{}, []string{}
	for i, f := range fields {
		switch {
		case f.word == "rate_limit":
			empty = nil
			if isNull(f.value) {
				empty = &fields[i]
			}
		case !flat[f.word] && slices.Contains(limitWords.words, f.word):
			flat[f.word] = true
			names = append(names, strconv.Quote(f.word))
		}
	}
	if empty == nil || len(names) == 0 {
		return nil
	}
	flat["rate_limit"] = true
	p.fail(path, empty.key, `"rate_limit" is empty, and its words stand beside it; indent %s so that they stand below it`, strings.Join(names, ", "))
	return flat
}

// descriptorPath is the place of a descriptor by its key and value, or by its
// number where it has no key.
func descriptorPath(parent, numbered string, fields []field) string {
	key, value := lastText(fields, "key"), lastText(fields, "value")
	if key == "" {
		return numbered
	}
	path := below(parent, fmt.Sprintf("key %q", rules.Shorten(key)))
	if value != "" {
		path += fmt.Sprintf(" value %q", rules.Shorten(value))
	}
	return path
}

func below(path, part string) string {
	if path == "" {
		return part
	}
	return path + " > " + part
}
