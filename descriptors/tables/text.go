package tables

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// ParseRow parses the fields of one row: a JSON object, or a form as curl --data sends it.
func ParseRow(text string) (_ Row, err error) {
	var row parsedRow
	var given []string
	set := func(field, value string) error {
		switch {
		case !slices.Contains(RowFields, field):
			return fmt.Errorf("unknown field %q (allowed: %s)", rules.Shorten(field), strings.Join(RowFields, ", "))
		case slices.Contains(given, field):
			return fmt.Errorf("duplicate field %q", field)
		}
		given = append(given, field)
		return row.set(field, value)
	}
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") {
		s := jsonview.Scanner{Bytes: []byte(text)}
		err = s.Object(func(key []byte) error {
			value, _, err := s.Value(nil)
			if err != nil {
				return err
			}
			return set(string(key), string(value))
		})
		if err == nil && s.Next() != 0 {
			err = jsonview.ErrSyntax
		}
	} else {
		var form url.Values
		if form, err = url.ParseQuery(text); err != nil {
			err = jsonview.ErrSyntax
		}
		for field, values := range form {
			for _, value := range values {
				if err := set(field, value); err != nil {
					return row.Row, err
				}
			}
		}
	}
	if err == nil {
		err = row.check()
	}
	if errors.Is(err, jsonview.ErrSyntax) {
		err = errors.New(`the row is neither a JSON object, such as {"requests_per_unit":500}, nor a form, such as requests_per_unit=500&name=gold`)
	}
	return row.Row, err
}

// fields returns the values of the row in the order of [RowFields].
func (r *Row) fields() []string {
	fields := make([]string, len(RowFields))
	if !r.Unlimited {
		fields[0] = strconv.FormatUint(uint64(r.RequestsPerUnit), 10)
	} else {
		fields[3] = "true"
	}
	if r.Unit != 0 {
		fields[1] = r.Unit.String()
	}
	if r.Burst > 0 {
		fields[2] = strconv.FormatUint(uint64(r.Burst), 10)
	}
	fields[4] = r.Name
	return fields
}

// WriteCSV writes all rows as CSV, in no order. It writes nothing for a table that never had a row.
func (r *Rows) WriteCSV(to io.Writer) error {
	if r.columns == nil {
		return nil
	}
	out := csv.NewWriter(to)
	if err := out.Write(slices.Concat(*r.columns, RowFields)); err != nil {
		return err
	}
	for values, row := range r.All() {
		if err := out.Write(append(values, row.fields()...)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Parts yields all rows as CSV files of about size bytes, each with its number of rows.
func (r *Rows) Parts(size int) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		var b bytes.Buffer
		out := csv.NewWriter(&b)
		header := slices.Concat(*r.columns, RowFields)
		n := 0
		_ = out.Write(header) // writes to memory cannot fail
		for values, row := range r.All() {
			_ = out.Write(append(values, row.fields()...)) // cannot fail
			if n++; b.Len() < size {
				continue
			}
			if out.Flush(); !yield(b.Bytes(), n) {
				return
			}
			b.Reset()
			n = 0
			_ = out.Write(header) // cannot fail
		}
		if out.Flush(); n > 0 {
			yield(b.Bytes(), n)
		}
	}
}

// MarshalJSON returns the row as a line of a JSON file, without key columns.
func (r Row) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		RequestsPerUnit *uint32 `json:"requests_per_unit,omitempty"`
		Unit            string  `json:"unit,omitempty"`
		Burst           uint32  `json:"burst,omitempty"`
		Unlimited       bool    `json:"unlimited,omitempty"`
		Name            string  `json:"name,omitempty"`
	}{r.number(), r.fields()[1], r.Burst, r.Unlimited, r.Name})
}

func (r *Row) number() *uint32 {
	if r.Unlimited {
		return nil
	}
	return &r.RequestsPerUnit
}

// UnmarshalJSON parses the fields of a row; see [RowFields].
func (r *Row) UnmarshalJSON(text []byte) (err error) {
	*r, err = ParseRow(string(text))
	return err
}
