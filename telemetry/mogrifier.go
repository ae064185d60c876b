package telemetry

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var placeholders = regexp.MustCompile(`\$\d+`)

// Mogrifier turns parts of a StatsD name into DogStatsD tags, like those of envoyproxy/ratelimit.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []Tag
}

// UnmarshalText parses `PATTERN;NAME;KEY:VALUE,KEY:VALUE`. The pattern is a regular expression in
// Go's syntax; $0, $1 and so on in the name and in tag values are replaced by what it and its
// groups matched. The tags are optional, and so is their semicolon if the pattern contains none.
func (m *Mogrifier) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ";")
	tags := ""
	if len(parts) > 2 { // a pattern may contain semicolons
		parts, tags = parts[:len(parts)-1], parts[len(parts)-1]
	}
	last := len(parts) - 1
	pattern := strings.Join(parts[:last], ";")
	name := parts[last]
	if pattern == "" || name == "" {
		return fmt.Errorf("%q: must be PATTERN;NAME;KEY:VALUE,KEY:VALUE, with a pattern and a name", text)
	}
	var err error
	m.name = name
	if m.pattern, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("%q: pattern: %w", text, err)
	}
	if m.tags, err = ParseTags(tags); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// apply returns the new name and the tags of a name. ok is false if the pattern does not match.
func (m *Mogrifier) apply(name string) (renamed string, tags []Tag, ok bool) {
	groups := m.pattern.FindStringSubmatch(name)
	if groups == nil {
		return "", nil, false
	}
	tags = make([]Tag, len(m.tags))
	for i, t := range m.tags {
		tags[i] = Tag{t.Key, expand(t.Value, groups)}
	}
	return sanitizeName(expand(m.name, groups)), tags, true
}

// expand replaces $0, $1 and so on by groups. References to missing groups stay.
func expand(text string, groups []string) string {
	return placeholders.ReplaceAllStringFunc(text, func(p string) string {
		if i, err := strconv.Atoi(p[1:]); err == nil && i < len(groups) {
			return groups[i]
		}
		return p
	})
}
