package tables

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Row has the numbers for one key, which replace those of the rule.
type Row struct { //nolint:recvcheck // it is read from JSON in place, and written as a value
	// RequestsPerUnit is 0 if Unlimited is set. Else 0 denies every request.
	RequestsPerUnit uint32
	// Unit is 0 for the rule's own window.
	Unit rules.Unit
	// Burst is that of a token bucket, or 0 to scale the rule's.
	Burst     uint32
	Unlimited bool
	// Name is the name in metrics, which several rows may have. If it is empty, the rule's applies.
	Name string
}

// parsedRow is a row that is read from text.
type parsedRow struct {
	Row
	numbered bool // whether it has a number
}

// String returns a row as `500/minute, burst: 20, name: "gold"`.
func (r Row) String() string {
	text := "unlimited"
	if !r.Unlimited {
		text = strconv.FormatUint(uint64(r.RequestsPerUnit), 10)
		if r.Unit != 0 {
			text += "/" + r.Unit.String()
		}
	}
	if r.Burst > 0 {
		text += fmt.Sprintf(", burst: %d", r.Burst)
	}
	if r.Name != "" {
		text += fmt.Sprintf(", name: %q", r.Name)
	}
	return text
}

// The fields of a row. Every other column is a key column, named after the key of an entry.
const (
	fieldNumber    = "requests_per_unit"
	fieldUnit      = "unit"
	fieldBurst     = "burst"
	fieldUnlimited = "unlimited"
	fieldName      = "name"
)

// RowFields are the columns that are not key columns.
var RowFields = []string{fieldNumber, fieldUnit, fieldBurst, fieldUnlimited, fieldName}

// Bounds on a table.
const (
	// MaxRows bounds the rows of a table.
	MaxRows = 4 << 20
	// MaxColumns bounds the key columns.
	MaxColumns = 8
	// MaxValueBytes bounds a value in a key column.
	MaxValueBytes = 1 << 10
	// MaxNames bounds the names of rows of a table, since each is a series of metrics.
	MaxNames     = 1000
	maxNameBytes = 64
)

// set sets one of [RowFields] from text.
func (r *parsedRow) set(field, value string) error {
	if value == "" { // an empty cell does not set the field
		return nil
	}
	switch field {
	case fieldNumber:
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("requests_per_unit is %q; it must be a whole number, 0 to 4294967295",
				rules.Shorten(value))
		}
		r.RequestsPerUnit = uint32(n)
		r.numbered = true
	case fieldUnit:
		u, ok := rules.UnitNamed(value)
		if !ok {
			return fmt.Errorf("unknown unit %q%s (allowed: %s)", rules.Shorten(value),
				rules.DidYouMean(value, rules.UnitNames()), strings.Join(rules.UnitNames(), ", "))
		}
		r.Unit = u
	case fieldBurst:
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("burst is %q; it must be a whole number, 1 to 4294967295", rules.Shorten(value))
		}
		r.Burst = uint32(n)
	case fieldUnlimited:
		// Accepts TRUE and 1, too, which spreadsheets and databases write.
		unlimited, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("unlimited is %q; it must be true or false", rules.Shorten(value))
		}
		r.Unlimited = unlimited
	case fieldName:
		if !utf8.ValidString(value) { // it becomes a label of metrics
			return fmt.Errorf("name %q is not UTF-8", rules.Shorten(value))
		}
		if len(value) > maxNameBytes || rules.NameMistake(value) != "" {
			return fmt.Errorf("name %q must have at most %d bytes and no quotes or control characters",
				rules.Shorten(value), maxNameBytes)
		}
		r.Name = value
	}
	return nil
}

// check checks the fields of a row together.
func (r *parsedRow) check() error {
	switch {
	case !r.Unlimited && !r.numbered:
		return errors.New("requests_per_unit is missing; write 0 to deny every request, or unlimited")
	case r.Unlimited && (r.numbered || r.Unit != 0 || r.Burst > 0):
		return errors.New("unlimited excludes requests_per_unit, unit and burst; remove them")
	}
	return nil
}

// checkValues checks the values of the key columns.
func checkValues(values []string) error {
	for _, v := range values {
		switch {
		case len(v) > MaxValueBytes:
			return fmt.Errorf("value %q is longer than %d bytes", rules.Shorten(v), MaxValueBytes)
		case strings.IndexByte(v, 0) >= 0:
			return fmt.Errorf("value %q contains a NUL byte", rules.Shorten(v))
		case strings.IndexByte(v, '\r') >= 0:
			// CSV readers remove it before a newline, so an exported row would have another key.
			return fmt.Errorf("value %q contains a carriage return", rules.Shorten(v))
		}
	}
	return nil
}

// CheckColumns checks the names of the key columns.
func CheckColumns(columns []string) error {
	switch {
	case len(columns) == 0:
		return errors.New("no key column; add one named after an entry of the rule, such as customer")
	case len(columns) > MaxColumns:
		return fmt.Errorf("%d key columns; at most %d are supported", len(columns), MaxColumns)
	}
	for i, c := range columns {
		if slices.Contains(columns[:i], c) {
			return fmt.Errorf("duplicate column %q", rules.Shorten(c))
		}
		if slices.Contains(RowFields, c) {
			return fmt.Errorf("column %q cannot be a key: it is a field of rows", c)
		}
		if c == "" || c != strings.TrimSpace(c) || strings.ContainsAny(c, "\x00\r") {
			return fmt.Errorf("column %q is not a valid name of an entry", c)
		}
	}
	return nil
}
