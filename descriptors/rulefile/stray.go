package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// stray reports a word that is not in a vocabulary. The words of envoyproxy/ratelimit load
// everywhere without effect, as they do there. It returns the word that was likely meant,
// so that this is not reported as missing too.
func (p *parser) stray(path string, v vocabulary, f field) (meant string) {
	home := homes(f.word)
	switch {
	case slices.Contains(referenceWords, f.word):
		p.warn(rules.NoEffect, path, f.key, "%q has no effect %s; it belongs %s", f.word, v.where, placeNames(home))
		p.ignored(path, f)
	case len(home) > 0:
		p.fail(path, f.key, "%q is not allowed %s; it belongs %s", f.word, v.where, placeNames(home))
	default:
		message := fmt.Sprintf("unknown word %q %s", rules.Shorten(f.word), v.where)
		if meant = rules.Suggest(f.word, v.words); meant != "" {
			message += fmt.Sprintf("; did you mean %q?", meant)
		} else if s := rules.Suggest(f.word, knownWords()); s != "" {
			message += fmt.Sprintf("; did you mean %q, which belongs %s?", s, placeNames(homes(s)))
		}
		p.fail(path, f.key, "%s (allowed: %s)", message, strings.Join(v.words, ", "))
	}
	return meant
}

func knownWords() []string {
	var all []string
	for _, v := range vocabularies() {
		all = append(all, v.words...)
	}
	return all
}

func placeNames(vs []vocabulary) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.where
	}
	return strings.Join(names, " or ")
}

// ignored checks what stands below a word without effect, as far as envoyproxy/ratelimit
// does: words must be known, and items of lists must be maps.
func (p *parser) ignored(path string, f field) {
	if f.word == "metadata" || !p.enter(f.value) {
		return
	}
	defer p.leave()
	switch f.value.Kind {
	case yaml.MappingNode:
		p.ignoredMap(path, f.value)
	case yaml.SequenceNode:
		for _, item := range f.value.Content {
			m := p.follow(item)
			if m.Kind != yaml.MappingNode {
				p.fail(path, item, "%q is a list of %s; lists hold maps", f.word, kindName(m))
				continue
			}
			p.ignoredMap(path, m)
		}
	default:
		p.text(path, f)
	}
}

func (p *parser) ignoredMap(path string, m *yaml.Node) {
	if !p.enter(m) {
		return
	}
	defer p.leave()
	for _, f := range p.fields(path, m, wordText) {
		if slices.Contains(referenceWords, f.word) {
			p.ignored(path, f)
			continue
		}
		p.stray(path, vocabulary{"in a part without effect", referenceWords}, f)
	}
}
