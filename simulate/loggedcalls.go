package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/jsonview"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// loggedCalls reads calls from the log itself: the service's dynamic metadata, or lines of format
// requests.
type loggedCalls struct {
	// onlyDomain restricts the calls to one domain, if not empty.
	onlyDomain []byte
	// object is the slot of an object with domain and descriptors, or -1 if the line itself has
	// them in the slots domain, hits and list.
	object             int
	domain, hits, list int
}

var (
	errEntries        = errors.New("entries: want [[\"key\", \"value\"]] or [\"key=value\"]")
	errDescriptors    = errors.New("want domain and descriptors")
	errTooManyEntries = errors.New("more than 255 descriptors or entries")
	errLimit          = errors.New("limit: want 5/hour or requests_per_unit:5 unit:HOUR")
	errHits           = errors.New("hits: want a whole number")
)

// appendCalls appends the call of a line. A line without the object made none.
func (d *loggedCalls) appendCalls(r *worker, l *accesslog.Line) error {
	var domain, hits, list []byte
	var column int
	if d.object >= 0 {
		object := l.Value(d.object)
		if object == nil {
			return nil
		}
		column = l.Column(d.object)
		var err error
		if domain, hits, list, err = parseMetadata(object, l); err != nil {
			return &accesslog.LineError{Column: column, Err: err}
		}
	} else {
		domain = l.Value(d.domain)
		hits = l.Value(d.hits)
		list = l.Value(d.list)
		column = l.Column(d.list)
	}
	if len(domain) == 0 || list == nil {
		return &accesslog.LineError{Column: column, Err: errDescriptors}
	}
	if len(d.onlyDomain) > 0 && !bytes.Equal(d.onlyDomain, domain) {
		r.batch.otherDomain++
		return nil
	}
	addend, err := parseHits(hits)
	if err != nil {
		return &accesslog.LineError{Column: column, Err: err}
	}
	call := len(r.writer.arena)
	r.writer.beginCall(domain, uint32(min(addend, 1<<32-1)))
	s := jsonview.Scanner{Bytes: list}
	err = s.List(func() error {
		r.batch.computed++
		return r.readDescriptor(&s, l)
	})
	if err != nil {
		return &accesslog.LineError{Column: column + s.Offset, Err: err}
	}
	r.writer.dropEmptyCall(call)
	return nil
}

func parseMetadata(b []byte, l *accesslog.Line) (domain, hits, list []byte, err error) {
	s := jsonview.Scanner{Bytes: b}
	err = s.Object(func(key []byte) (err error) {
		var value []byte
		value, l.Scratch, err = s.Value(l.Scratch)
		switch string(key) {
		case "domain":
			domain = value
		case "hitsAddend", "hits":
			hits = value
		case "descriptors":
			list = value
		}
		return err
	})
	return domain, hits, list, err
}

// parseHits parses a number, which JSON may write as 3 or 3.0.
func parseHits(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f < 0 || f >= 1<<63 || f != float64(uint64(f)) {
		return 0, errHits
	}
	return uint64(f), nil
}

func (r *worker) readDescriptor(s *jsonview.Scanner, l *accesslog.Line) error {
	var d descriptors.Descriptor
	var entries []byte
	err := s.Object(func(key []byte) (err error) {
		var value []byte
		value, l.Scratch, err = s.Value(l.Scratch)
		if err != nil || value == nil {
			return err
		}
		switch string(key) {
		case "entries":
			entries = value
		case "hits", "hitsAddend":
			d.HasHits = true
			d.Hits, err = parseHits(value)
		case "refund":
			d.Refund = string(value) == "true"
		case "limit":
			d.HasOverride = true
			d.Override, err = parseOverride(value)
		default:
			if rules.EditDistance(string(key), "hits") <= 1 || rules.EditDistance(string(key), "hitsAddend") <= 2 {
				err = fmt.Errorf("unknown field %q of a descriptor; did you mean \"hits\"?", key)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if !r.writer.beginDescriptor(&d) {
		return errTooManyEntries
	}
	if entries == nil {
		return nil
	}
	inner := jsonview.Scanner{Bytes: entries}
	return inner.List(func() error { return r.readEntry(&inner, l) })
}

// readEntry consumes an entry, a pair or text, and appends it.
func (r *worker) readEntry(s *jsonview.Scanner, l *accesslog.Line) (err error) {
	var of [2][]byte
	switch s.Next() {
	case '[':
		n := 0
		err = s.List(func() (err error) {
			if n == len(of) || s.Next() != '"' {
				return errEntries
			}
			of[n], l.Scratch, err = s.Value(l.Scratch)
			n++
			return err
		})
		if err == nil && n < len(of) {
			err = errEntries
		}
	case '"':
		var text []byte
		text, l.Scratch, err = s.Value(l.Scratch)
		of[0], of[1], _ = bytes.Cut(text, []byte("="))
	default:
		err = errEntries
	}
	if err == nil && !r.writer.addEntry(of[0], of[1]) {
		err = errTooManyEntries
	}
	return err
}

// parseOverride parses a limit such as 5/hour, or as in the service's metadata.
func parseOverride(b []byte) (descriptors.Override, error) {
	rest, ok := bytes.CutPrefix(b, []byte("requests_per_unit:"))
	if !ok {
		o, err := descriptors.ParseOverride(string(b))
		if err != nil {
			return o, errLimit
		}
		return o, nil
	}
	number, unit, ok := bytes.Cut(rest, []byte(" unit:"))
	n, err := strconv.ParseUint(string(number), 10, 32)
	if !ok || err != nil {
		return descriptors.Override{}, errLimit
	}
	o := descriptors.Override{RequestsPerUnit: uint32(n)}
	if u, ok := rules.UnitNamed(string(bytes.ToLower(unit))); ok {
		o.Unit = int32(u)
	}
	return o, nil
}
