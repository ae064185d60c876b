package accesslog

import (
	"bytes"
	"slices"
)

// scanLeftmost finds the leftmost position of each literal and reports whether it is the only
// reading. Proof, from the right: if the literals after i have only one position, literal i can
// have another one only further right, in the value that follows it. bad is the column of the first
// mismatch, or -1.
func (f *textFormat) scanLeftmost(line []byte, starts, ends []int) (bad int, only bool) {
	first := f.literals[0]
	last := f.literals[len(f.literals)-1]
	if !bytes.HasPrefix(line, first) {
		return 0, false
	}
	at := len(first)
	n := len(f.ops)
	only = true
	for i := range n - 1 {
		from := at
		next := f.literals[i+1]
		if f.ops[i].class == jsonObject {
			from = at + objectLength(line[at:])
		}
		j := bytes.IndexByte(line[from:], next[0])
		if len(next) > 1 && j >= 0 && !bytes.HasPrefix(line[from+j:], next) {
			j = bytes.Index(line[from:], next)
		}
		if j < 0 {
			return at, false
		}
		end := from + j
		starts[i] = at
		ends[i] = end
		if f.repeats[i].possible {
			only = only && f.isUnambiguous(i, line[at:end])
		}
		at = end + len(next)
	}
	end := len(line) - len(last)
	if end < at || !bytes.HasSuffix(line, last) {
		return len(line), false
	}
	starts[n-1] = at
	ends[n-1] = end
	return -1, only && f.isUnambiguous(n-1, line[at:end])
}

// isUnambiguous reports whether value i does not contain the literal before it again.
func (f *textFormat) isUnambiguous(i int, value []byte) bool {
	switch a := &f.repeats[i]; {
	case f.ops[i].class == integer && f.slots[i] >= 0 && !isNumber(value):
		return false
	case f.ops[i].class == jsonObject && len(value) > 1:
		return true
	case a.inValue && bytes.Contains(value, f.literals[i]):
		return false
	default:
		for _, head := range a.overlaps {
			if bytes.HasPrefix(value, head) {
				return false
			}
		}
		return true
	}
}

// maxReadings limits the positions of a literal that are tried. Ordinary requests have fewer.
const maxReadings = 64

type valueSpan struct{ start, end int }

// findReadings finds all readings of a line. The start of an ambiguous value becomes -1.
func (f *textFormat) findReadings(line []byte, l *Line) error {
	edges := make([][]valueSpan, len(f.ops))
	starts := []int{len(f.literals[0])}
	for i := range edges {
		if edges[i] = f.candidates(i, starts, line); len(edges[i]) > maxReadings {
			return &LineError{edges[i][maxReadings].start, errAmbiguous}
		}
		starts = nil
		for _, e := range edges[i] {
			if next := e.end + len(f.literals[i+1]); !slices.Contains(starts, next) {
				starts = append(starts, next)
			}
		}
	}
	// From the right, keep the candidates that are followed by a kept candidate of the next value.
	after := []int{len(line)}
	for i, kept := range slices.Backward(edges) {
		kept = slices.DeleteFunc(kept,
			func(e valueSpan) bool { return !slices.Contains(after, e.end+len(f.literals[i+1])) })
		switch len(kept) {
		case 0:
			return &LineError{len(f.literals[0]), errFormatMismatch}
		case 1:
			l.starts[i] = kept[0].start
			l.ends[i] = kept[0].end
		default:
			l.starts[i] = -1
			l.ends[i] = -1
		}
		after = nil
		for _, e := range kept {
			after = append(after, e.start)
		}
	}
	return nil
}

// candidates returns the possible positions of a value that begins at one of starts, up to one more
// than maxReadings.
func (f *textFormat) candidates(i int, starts []int, line []byte) (all []valueSpan) {
	class := f.ops[i].class
	next := f.literals[i+1]
	for _, start := range starts {
		for from := start; from <= len(line) && len(all) <= maxReadings; {
			end := from + bytes.Index(line[from:], next)
			if i == len(f.ops)-1 {
				end = len(line) - len(next)
			}
			if end < from {
				break
			}
			from = end + 1
			if f.ops[i].fits(line[start:end]) {
				all = append(all, valueSpan{start, end})
			} else if class == word || class == integer {
				break // longer values do not fit either
			}
			if i == len(f.ops)-1 {
				break
			}
		}
	}
	return all
}
