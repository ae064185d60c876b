package rules

import (
	"bytes"
	"fmt"
	"strings"
)

// ParseRangeList reads a file with a range of addresses or an address on each line, as in the field
// cidr. Lines may be empty, and `#` begins a comment. file is the name in diagnostics. The last line
// must end with a newline: otherwise the file may be incomplete.
func ParseRangeList(file string, content []byte) ([]Range, Diagnostics) {
	var found Findings
	fail := func(line, col int, message string) {
		found.Add(Diagnostic{Pos: Pos{File: file, Line: line, Col: col}, Severity: Error, Message: message})
	}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	ranges := make([]Range, 0, bytes.Count(content, []byte("\n")))
	line := 0
	for len(content) > 0 {
		line++
		text, rest, complete := bytes.Cut(content, []byte("\n"))
		content = rest
		if !complete {
			fail(line, 1, fmt.Sprintf("%q does not end with a newline, so the file may be incomplete; end the last line with a newline", Shorten(string(text))))
			break
		}
		text, _, _ = bytes.Cut(text, []byte("#"))
		item := strings.TrimSpace(string(text))
		if item == "" {
			continue
		}
		r, err := ParseRange(item)
		if err != nil {
			fail(line, 1+bytes.IndexByte(text, item[0]), err.Error())
			if found.Full() {
				break
			}
			continue
		}
		ranges = append(ranges,
			Range{Prefix: r, Pos: Pos{File: file, Line: line, Col: 1 + bytes.IndexByte(text, item[0])}})
	}
	if len(ranges) == 0 && len(found.All) == 0 {
		fail(1, 1, "the file has no ranges, so the descriptor matches nothing; add a range, such as 10.0.0.0/8, or remove the descriptor")
	}
	return ranges, found.All
}
