package rulefile

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// allowComment is a comment that acknowledges warnings by their codes.
var allowComment = regexp.MustCompile(`(?:^|\s)#\s*sluice:allow(?:\s+([^#]*))?$`)

// allowances returns the warnings that comments acknowledge: on the comment's line or, if
// nothing else stands there, on the next line that has more than a comment.
func allowances(file string, content []byte) rules.Allowances {
	if !bytes.Contains(content, []byte("sluice:allow")) {
		return nil
	}
	all := rules.Allowances{}
	type pending struct {
		at   rules.Pos
		code rules.Code
	}
	var above []pending
	for i, number := 0, 1; i < len(content); number++ {
		line, next := nextLine(content, i)
		i = next
		line = bytes.TrimRight(line, " \t\r")
		alone := blank(line)
		if m := allowComment.FindSubmatchIndex(line); m != nil {
			at := rules.Pos{File: file, Line: number, Col: bytes.IndexByte(line[m[0]:], '#') + m[0] + 1}
			var codes []string
			if m[2] >= 0 {
				codes = strings.FieldsFunc(string(line[m[2]:m[3]]), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
			}
			if len(codes) == 0 {
				codes = []string{""} // which is no code
			}
			for _, code := range codes {
				above = append(above, pending{at, rules.Code(code)})
			}
		}
		if alone && i < len(content) {
			continue
		}
		for _, p := range above {
			all.Add(p.at, number, p.code)
		}
		above = nil
	}
	return all
}
