package accesslog

import (
	"bytes"
	"errors"
)

// ltsvFormat reads Labeled Tab-separated Values (ltsv.org): LABEL:VALUE, separated by tabs.
type ltsvFormat struct {
	namedFields
	slots map[string]int
}

// ltsvNames maps labels recommended by ltsv.org that are unknown or mean something else in other
// formats.
var ltsvNames = map[string]string{
	"host": "remote_addr", "req": requestLine, "ua": "user-agent", "forwardedfor": FieldXFF, "reqtime": "request_time", "reqid": "request_id",
}

var errLTSV = errors.New("not LABEL:VALUE")

func (*ltsvFormat) info() formatInfo { return fieldFormatInfo("ltsv", "LTSV", maxLineBytes) }

func newLTSVFormat(names map[string]string, sample [][]byte) (lineParser, error) {
	f := &ltsvFormat{namedFields: namedFields{renamed: names}}
	for name, label := range names {
		names[name] = ltsvName([]byte(label))
	}
	for _, line := range sample {
		_ = eachLabel(line, func(label, value []byte, _ int) { // bad lines are counted later
			f.observeName(ltsvName(label))
			f.observeValue(ltsvName(label), value)
		})
	}
	if len(f.observed) < 2 {
		return nil, errors.New("no line has tab-separated LABEL:VALUE pairs")
	}
	return f, f.checkRenamed()
}

func (f *ltsvFormat) bind(l *layout) error {
	f.slots = f.slotsByName(l, nil)
	return nil
}

func (f *ltsvFormat) read(line []byte, l *Line, request func(error) error) error {
	err := eachLabel(line, func(label, value []byte, column int) {
		slot, wanted := f.slots[ltsvName(label)]
		if !wanted || isAbsent(value) {
			return
		}
		if slot == slotTime && value[0] == '[' {
			value, column = bytes.TrimSuffix(value[1:], []byte("]")), column+1
		}
		l.set(slot, column, value)
	})
	if err != nil {
		return err
	}
	return request(nil)
}

func ltsvName(label []byte) string {
	if name, ok := ltsvNames[string(label)]; ok {
		return name
	}
	return string(label)
}

// eachLabel calls use with each value of a line and its column.
func eachLabel(line []byte, use func(label, value []byte, column int)) error {
	for at := 0; at <= len(line); {
		cell, _, _ := bytes.Cut(line[at:], []byte{'\t'})
		label, value, ok := bytes.Cut(cell, []byte{':'})
		if !ok || !isLabel(label) {
			return &LineError{at, errLTSV}
		}
		use(label, value, at+len(label)+1)
		at += len(cell) + 1
	}
	return nil
}

func isLabel(text []byte) bool {
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return len(text) > 0
}
