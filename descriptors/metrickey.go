package descriptors

import "bytes"

// compileMetric determines which levels of the metric key have values of the request.
func (r *Rule) compileMetric(lineage []*node, detailed bool) {
	shared := r.optionalOrZero().shared
	for i, n := range lineage {
		isShared := shared != nil && shared[i] != nil
		isConstant := n.value != "" && !isWildcard(n.key) && !isWildcard(n.value)
		if isShared || isConstant || !detailed && !n.valueToMetric {
			continue
		}
		optional := r.ensureOptional()
		if optional.runtime == nil {
			optional.runtime = make([]bool, len(lineage))
		}
		optional.runtime[i] = true
		r.RuntimeMetric = true
	}
	r.detailedMetric = detailed
}

// MetricKeys makes the names of rules in metrics.
type MetricKeys struct {
	// NoDots replaces dots in keys and values by `_`, so that dots only separate levels.
	NoDots bool
}

// AppendMetricKey is [MetricKeys.Append] of the zero MetricKeys.
func (r *Rule) AppendMetricKey(dst []byte, entries []Entry) (key []byte, key1End, key2End int) {
	return MetricKeys{}.Append(dst, r, entries)
}

// Append appends a rule's metric key, without its domain, to the empty dst: all levels joined by
// dots, as in envoyproxy/ratelimit. The first level is key[:key1End] and the second
// key[key1End+1:key2End]; key2End is 0 if there is only one. entries matched the rule; they are
// required if the rule has RuntimeMetric. If they are nil the key has the patterns of the rules. It
// allocates only to grow dst.
func (k MetricKeys) Append(dst []byte, r *Rule, entries []Entry) (key []byte, key1End, key2End int) {
	key, _, key1End, key2End = k.appendTo(dst, r, r.node, entries)
	return key, key1End, key2End
}

// appendTo appends the levels of a rule down to n. level is that of n.
func (k MetricKeys) appendTo(dst []byte, r *Rule, n *node, entries []Entry) (key []byte, level, key1End, key2End int) {
	if n.parent.parent != nil {
		dst, level, key1End, key2End = k.appendTo(dst, r, n.parent, entries)
		dst = append(dst, '.')
		level++
	}
	start := len(dst)
	if entries != nil && r.RuntimeMetric && r.optional.runtime[level] {
		// In envoyproxy/ratelimit a detailed key keeps the underscore behind a key
		// whose value is empty, unless some level shares its threshold.
		keepUnderscore := r.detailedMetric && r.optional.shared == nil
		var buf [maxCounted]byte
		dst = appendMetricLevel(dst, entries[level].Key, r.counted(buf[:], level, entries[level].Value, ""),
			keepUnderscore)
	} else {
		dst = appendMetricLevel(dst, n.key, n.valueText(), false)
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

// sanitize replaces characters of a level that statsd does not support.
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

// MetricDomain returns the name of a domain in metrics, sanitized like a level of a metric key.
// Dots stay, since the domain is a separate label.
func MetricDomain(name string) string {
	b := []byte(name)
	sanitize(b)
	return string(b)
}

// sanitize replaces `:`, `|` and the dots of dotted quads in a level by `_`, as
// envoyproxy/ratelimit does.
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

// dottedQuad returns the length of the dotted quad at the start of b, or 0. More digits may follow
// it.
func dottedQuad(b []byte) int {
	i := 0
	for part := range 4 {
		digits := 0
		for digits < 3 && i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
			digits++
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
