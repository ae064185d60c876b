package tables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// maxErrors bounds the errors that are reported for one file.
const maxErrors = 20

// builder collects the rows of a file.
type builder struct {
	file    string
	columns []string
	hasher  identity.Hasher
	rows    []pending
	keys    []byte
	names   map[string]uint16
	listed  []string // the names by index
	found   rules.Findings
	// lastWins permits duplicate keys, as in a journal: the last row applies, which may be a
	// deletion.
	lastWins bool
}

// pending is a row without a shard. slot.key is the end of its key in builder.keys.
type pending struct {
	slot slot
	line uint32
}

// fail reports an error. It returns true if no more errors are reported.
func (b *builder) fail(line, col int, format string, args ...any) (last bool) {
	b.report(rules.Error, line, col, fmt.Sprintf(format, args...))
	return b.found.Full()
}

func (b *builder) report(severity rules.Severity, line, col int, message string) {
	b.found.Add(rules.Diagnostic{Pos: rules.Pos{File: b.file, Line: line, Col: col}, Severity: severity, Message: message})
}

// warnUnfinished warns that the file does not end with a newline.
func (b *builder) warnUnfinished() {
	line := 1
	last := "its header"
	if n := len(b.rows); n > 0 {
		line = int(b.rows[n-1].line)
		last = "the row of " + b.keyText(n-1)
	}
	b.report(rules.Warning, line, 1, fmt.Sprintf("the file does not end with a newline: %s may be truncated, and rows may be missing; end the last line", last))
}

// keyText returns the key of a row for messages.
func (b *builder) keyText(i int) string {
	key := payloadReader{b: b.keyOf(i)}
	parts := make([]string, len(b.columns))
	for i, value := range key.readValues(nil) {
		parts[i] = fmt.Sprintf("%s=%q", b.columns[i], rules.Shorten(value))
	}
	return strings.Join(parts, ", ")
}

// add adds a valid row.
func (b *builder) add(values []string, row Row, line int) error {
	if len(b.rows) == MaxRows && !b.lastWins {
		return fmt.Errorf("the table has more than %d rows", MaxRows)
	}
	name := b.names[row.Name]
	if row.Name != "" && name == 0 {
		if len(b.listed) == MaxNames {
			return fmt.Errorf("the table has more than %d names; each is a series of metrics, and rows may share one", MaxNames)
		}
		if b.names == nil {
			b.names = map[string]uint16{}
		}
		b.listed = append(b.listed, row.Name)
		name = uint16(len(b.listed)) //nolint:gosec // at most MaxNames
		b.names[row.Name] = name
	}
	h := b.hasher
	for i, v := range values {
		h.AddBytesAt(i, []byte(v))
	}
	s := slotOf(h.Sum(), row, name)
	b.keys = appendKey(b.keys, values)
	if len(b.keys) > maxKeyBytes && !b.lastWins { // the size of a journal is bounded
		return fmt.Errorf("the keys take more than %d MiB", maxKeyBytes>>20)
	}
	s.key = uint32(len(b.keys))                       //nolint:gosec // at most maxKeyBytes
	b.rows = append(b.rows, pending{s, uint32(line)}) //nolint:gosec // files are smaller
	return nil
}

// maxKeyBytes bounds the size of all keys of a table.
const maxKeyBytes = 256 << 20

// build returns the rows, or nil if it reported that two have the same key.
func (b *builder) build() *Rows {
	columns := Columns(b.columns)
	for shards := len(b.rows)/meanRows + 1; ; shards *= 2 {
		r := newRows(&columns, b.hasher, shards, b.listed)
		full := b.fill(r)
		switch {
		case b.found.All != nil:
			return nil
		case !full:
			if i := slices.IndexFunc(b.rows, func(p pending) bool { return p.slot.burst > 0 }); i >= 0 && !b.lastWins {
				r.burst = b.keyText(i)
			}
			return r
		}
	}
}

// fill adds all rows to r. It returns true if a shard would have too many.
func (b *builder) fill(r *Rows) (full bool) {
	starts := make([]uint32, len(r.shards)+1) // where each shard begins in order
	bytes := make([]int, len(r.shards))
	from := uint32(0)
	for i := range b.rows {
		s := &b.rows[i].slot
		at := r.shardOf(s.id)
		starts[at+1]++
		bytes[at] += int(s.key-from) + 2
		from = s.key
	}
	for i := range r.shards {
		starts[i+1] += starts[i]
	}
	order := make([]uint32, len(b.rows))
	next := slices.Clone(starts)
	for i := range b.rows {
		at := r.shardOf(b.rows[i].slot.id)
		order[next[at]] = uint32(i) // at most MaxRows, or the changes of a journal
		next[at]++
	}
	for at := range r.shards {
		indexes := order[starts[at]:starts[at+1]]
		if len(indexes) == 0 {
			continue
		}
		s := &shard{keys: make([]byte, 0, bytes[at])}
		if b.lastWins {
			indexes = b.newest(indexes)
		}
		for _, i := range indexes {
			if s.n == maxShardRows {
				return true
			}
			if row := &b.rows[i]; s.insert(row.slot, b.keyOf(int(i))) != nil && b.reportDuplicate(indexes, row) {
				return false
			}
		}
		r.shards[at].Store(s)
		r.n.Add(int64(s.n))
	}
	return false
}

// newest returns the last row of each key, without deleted keys.
func (b *builder) newest(indexes []uint32) []uint32 {
	seen := make(map[identity.ID]bool, len(indexes))
	var last []uint32
	for _, i := range slices.Backward(indexes) {
		if s := &b.rows[i].slot; !seen[s.id] {
			seen[s.id] = true
			if s.flags&isDeleted == 0 {
				last = append(last, i)
			}
		}
	}
	return last
}

func (b *builder) keyOf(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = b.rows[i-1].slot.key
	}
	return b.keys[from:b.rows[i].slot.key]
}

// reportDuplicate reports a row whose key an earlier row in the shard has. It returns true if no
// more errors are reported.
func (b *builder) reportDuplicate(indexes []uint32, row *pending) (last bool) {
	i := slices.IndexFunc(indexes, func(i uint32) bool { return b.rows[i].slot.id == row.slot.id })
	return b.fail(int(row.line), 1, "duplicate key; first on line %d", b.rows[indexes[i]].line)
}
