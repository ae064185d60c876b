package descriptors

import "bytes"

// metricLevel is what one level adds to a metric key.
type metricLevel struct {
	// text is the whole level, sanitised, unless runtime is set.
	text string
	// runtime says that the level is made of the entry's key and value.
	runtime bool
}

// compileMetric sets r's metric key. Where the flags of envoyproxy/ratelimit ask
// for values of the request, the static key has the patterns.
func (r *Rule) compileMetric(lineage []*node, detailed bool) {
	levels := make([]metricLevel, len(lineage))
	var key []byte
	ends := make([]int, 0, len(lineage))
	for i, n := range lineage {
		if i > 0 {
			key = append(key, '.')
		}
		start := len(key)
		key = append(key, n.key...)
		if n.value != "" {
			key = append(key, '_')
			key = append(key, n.value...)
		}
		sanitize(key[start:])
		ends = append(ends, len(key))
		varies := n.value == "" || isWildcard(n.key+n.value)
		shared := r.shared != nil && r.shared[i] != nil
		levels[i] = metricLevel{
			text:    string(key[start:]),
			runtime: varies && !shared && (detailed || n.valueToMetric),
		}
		r.RuntimeMetric = r.RuntimeMetric || levels[i].runtime
	}
	r.Metric = MetricKey{Rule: string(key), Key1: string(key[:ends[0]])}
	if len(ends) > 1 {
		r.Metric.Key2 = string(key[ends[0]+1 : ends[1]])
	}
	if r.RuntimeMetric {
		r.runtimeLevels = levels
		// In envoyproxy/ratelimit a detailed key keeps the underscore behind a key
		// whose value is empty, unless some level shares its threshold.
		r.keepUnderscore = detailed && r.shared == nil
	}
}

// AppendMetricKey appends the metric key that a rule with RuntimeMetric has for
// the entries that matched it, without the domain, to the empty dst. The first
// level is key[:key1End] and the second key[key1End+1:key2End]; key2End is 0 if
// there is only one. It allocates nothing but what dst has to grow.
func (r *Rule) AppendMetricKey(dst []byte, entries []Entry) (key []byte, key1End, key2End int) {
	for i := range r.runtimeLevels {
		if i > 0 {
			dst = append(dst, '.')
		}
		if l := &r.runtimeLevels[i]; l.runtime {
			dst = appendMetricLevel(dst, &entries[i], r.keepUnderscore)
		} else {
			dst = append(dst, l.text...)
		}
		key1End, key2End = metricEnds(i, len(dst), key1End, key2End)
	}
	return dst, key1End, key2End
}

// AppendOverrideMetricKey is [Rule.AppendMetricKey] for a descriptor with a limit of its
// own: the key has the values of all levels.
func AppendOverrideMetricKey(dst []byte, entries []Entry) (key []byte, key1End, key2End int) {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = appendMetricLevel(dst, &entries[i], false)
		key1End, key2End = metricEnds(i, len(dst), key1End, key2End)
	}
	return dst, key1End, key2End
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

func appendMetricLevel(dst []byte, e *Entry, keepUnderscore bool) []byte {
	start := len(dst)
	dst = append(dst, e.Key...)
	if len(e.Value) > 0 || keepUnderscore {
		dst = append(dst, '_')
		dst = append(dst, e.Value...)
	}
	sanitize(dst[start:])
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
