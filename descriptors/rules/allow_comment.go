package rules

import (
	"bytes"
	"regexp"
	"strings"
)

// allowComment is a comment that acknowledges warnings by their codes.
var allowComment = regexp.MustCompile(`(?:^|\s)#\s*sluice:allow(?:\s+([^#]*))?$`)

// FindAllowances returns the warnings that comments of a YAML file acknowledge. A comment applies
// to its own line or, if the line has nothing else, to the next line that does. It returns nil if
// there are none.
func FindAllowances(file string, content []byte) Allowances {
	if !bytes.Contains(content, []byte("sluice:allow")) {
		return nil
	}
	all := Allowances{}
	type pending struct {
		at   Pos
		code Code
	}
	var above []pending
	number := 0
	rest := content
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		number++
		line = bytes.TrimRight(line, " \t\r")
		text := bytes.TrimLeft(line, " \t")
		alone := len(text) == 0 || text[0] == '#'
		if m := allowComment.FindSubmatchIndex(line); m != nil {
			at := Pos{File: file, Line: number, Col: bytes.IndexByte(line[m[0]:], '#') + m[0] + 1}
			var codes []string
			if m[2] >= 0 {
				codes = strings.FieldsFunc(string(line[m[2]:m[3]]),
					func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
			}
			if len(codes) == 0 {
				codes = []string{""} // reported as an unknown code
			}
			for _, code := range codes {
				above = append(above, pending{at, Code(code)})
			}
		}
		if alone && len(rest) > 0 {
			continue
		}
		for _, p := range above {
			all.Add(p.at, number, p.code)
		}
		above = nil
	}
	return all
}
