package descriptors

import "bytes"

// compileMetric finds out which levels of the metric key have values of the request.
func (r *Rule) compileMetric(lineage []*node, detailed bool) {
	shared := r.few().shared
	for i, n := range lineage {
		if (!detailed && !n.valueToMetric) || shared != nil && shared[i] != nil ||
			n.value != "" && !isWildcard(n.key) && !isWildcard(n.value) {
			continue
		}
		rare := r.ensureRare()
		if rare.runtime == nil {
			rare.runtime = make([]bool, len(lineage))
		}
		rare.runtime[i], r.RuntimeMetric = true, true
	}
	r.detailedMetric = detailed
}

// MetricKeys writes the names that rules have in metrics.
type MetricKeys struct {
	// NoDots has `_` stand for each dot of a key or value, so that dots divide levels only.
	NoDots bool
}

// AppendMetricKey is [MetricKeys.Append] of the zero MetricKeys.
func (r *Rule) AppendMetricKey(dst []byte, entries []Entry) (key []byte, key1End, key2End int) {
	return MetricKeys{}.Append(dst, r, entries)
}

// Append appends a rule's metric key, without its domain, to the empty dst. It is what
// envoyproxy/ratelimit builds: all levels joined by dots. The first level is key[:key1End] and the
// second key[key1End+1:key2End]; key2End is 0 if there is only one. Entries are those that matched a
// rule with RuntimeMetric. Without entries the key has the patterns of the rules file in place of their
// values. It allocates nothing but what dst has to grow.
func (k MetricKeys) Append(dst []byte, r *Rule, entries []Entry) (key []byte, key1End, key2End int) {
	key, _, key1End, key2End = k.appendTo(dst, r, r.node, entries)
	return key, key1End, key2End
}

// appendTo appends the levels of a rule down to n. Level is that of n.
func (k MetricKeys) appendTo(dst []byte, r *Rule, n *node, entries []Entry) (key []byte, level, key1End, key2End int) {
	if n.parent.parent != nil {
		dst, level, key1End, key2End = k.appendTo(dst, r, n.parent, entries)
		dst = append(dst, '.')
		level++
	}
	start := len(dst)
	if entries != nil && r.RuntimeMetric && r.rare.runtime[level] {
		// In envoyproxy/ratelimit a detailed key keeps the underscore behind a key
		// whose value is empty, unless some level shares its threshold.
		keepUnderscore := r.detailedMetric && r.rare.shared == nil
		dst = appendMetricLevel(dst, entries[level].Key, entries[level].Value, keepUnderscore)
	} else {
		dst = appendMetricLevel(dst, n.key, n.value, false)
	}
	k.sanitize(dst[start:])
	key1End, key2End = metricEnds(level, len(dst), key1End, key2End)
	return dst, level, key1End, key2End
}

// AppendOverride is Append for a descriptor with a limit of its own: the key has the values of all
// levels.
func (k MetricKeys) AppendOverride(dst []byte, entries []Entry) (key []byte, key1End, key2End int) {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '.')
		}
		start := len(dst)
		dst = appendMetricLevel(dst, entries[i].Key, entries[i].Value, false)
		k.sanitize(dst[start:])
		key1End, key2End = metricEnds(i, len(dst), key1End, key2End)
	}
	return dst, key1End, key2End
}

// sanitize makes one level fit for statsd in place.
func (k MetricKeys) sanitize(level []byte) {
	sanitize(level)
	for i, c := range level {
		if k.NoDots && c == '.' {
			level[i] = '_'
		}
	}
}

// metricEnds returns the ends of the first two levels after level i ended at end.
func metricEnds(i, end, key1End, key2End int) (first, second int) {
	switch i {
	case 0:
		return end, 0
	case 1:
		return key1End, end
	default:
		return key1End, key2End
	}
}

func appendMetricLevel[T string | []byte](dst []byte, key, value T, keepUnderscore bool) []byte {
	dst = append(dst, key...)
	if len(value) > 0 || keepUnderscore {
		dst = append(dst, '_')
		dst = append(dst, value...)
	}
	return dst
}

// MetricDomain returns the name that a domain has in metrics, sanitised like a
// level of a metric key. Its other dots stay: it is a label of its own.
func MetricDomain(name string) string {
	b := []byte(name)
	sanitize(b)
	return string(b)
}

// sanitize makes one level of a metric key fit for statsd in place, as
// envoyproxy/ratelimit does: `:` and `|`, and the dots of dotted quads, become
// `_`. Other dots stay.
func sanitize(b []byte) {
	for i, c := range b {
		if c == ':' || c == '|' {
			b[i] = '_'
		}
	}
	if bytes.Count(b, []byte{'.'}) < 3 {
		return
	}
	for i := 0; i < len(b); {
		n := dottedQuad(b[i:])
		for j := range n {
			if b[i+j] == '.' {
				b[i+j] = '_'
			}
		}
		i += max(n, 1)
	}
}

// dottedQuad returns the length of the dotted quad that b begins with, or 0: four
// times one to three digits. More digits may follow.
func dottedQuad(b []byte) int {
	i := 0
	for part := range 4 {
		digits := 0
		for digits < 3 && i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i, digits = i+1, digits+1
		}
		if digits == 0 {
			return 0
		}
		if part < 3 {
			if i == len(b) || b[i] != '.' {
				return 0
			}
			i++
		}
	}
	return i
}
