package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// syntaxError reports invalid YAML. It recognizes common mistakes, for which the library's error
// would be misleading.
func (p *parser) syntaxError(content []byte, err error) {
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		p.report("", "", 1, 1, "invalid YAML: "+err.Error())
		return
	}
	lines := strings.Split(string(content), "\n")
	if i, marker := conflictMarker(lines); marker != "" {
		p.report("", "", i+1, 1, fmt.Sprintf(
			"%q is a merge conflict marker; resolve the conflict and remove all markers", rules.Shorten(marker)))
		return
	}
	for i, line := range lines {
		if at := template.FindStringIndex(line); at != nil && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			p.report("", "", i+1, at[0]+1,
				fmt.Sprintf("%s is a template; %s", rules.Shorten(line[at[0]:at[1]]), templateRemedy))
			return
		}
	}
	message := "invalid YAML: " + le.Message
	if le.ContextMsg != "" {
		message += " " + le.ContextMsg
		if l := le.ContextMark.Line; l > 0 && l != le.Mark.Line {
			message += fmt.Sprintf(" that begins on line %d", p.at(l, 1).Line)
		}
	}
	line := max(le.Mark.Line, 1)
	col := max(le.Mark.Column, 1)
	if i := bytes.IndexFunc(content, isControl); le.Mark.Line == 0 && i >= 0 {
		// The reader gives no place for these.
		line = 1 + bytes.Count(content[:i], []byte("\n"))
		col = i - bytes.LastIndexByte(content[:i], '\n')
	}
	if line <= len(lines) {
		if strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t") {
			message += "; indent with spaces, not tabs"
		}
		if start, text := starText(lines[line-1], col); text != "" {
			col = start
			message += fmt.Sprintf("; text that begins with * needs quotes: %q", text)
		}
	}
	p.report("", "", line, col, message)
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
}

// conflictMarker returns the first marker of a merge conflict and the index of its line.
func conflictMarker(lines []string) (i int, marker string) {
	for i, line := range lines {
		if strings.HasPrefix(line, "<<<<<<< ") || strings.HasPrefix(line, ">>>>>>> ") {
			return i, strings.TrimSuffix(line, "\r")
		}
	}
	return 0, ""
}

// template matches templates of Helm and similar tools. To YAML an unquoted one is a map.
var template = regexp.MustCompile(`\{\{.*?\}\}`)

const templateRemedy = "give sluice the rendered text, such as the output of helm template"

// starText returns the text that begins with a star at column col of a line or one column before,
// and the star's column. To YAML such text is an alias, and the library reports the column of the
// star or the next one.
func starText(line string, col int) (start int, text string) {
	for start := min(col, len(line)); start > 0 && start >= col-1; start-- {
		if line[start-1] == '*' {
			text, _, _ := strings.Cut(line[start-1:], " #")
			if i := strings.IndexAny(text, ",}] \t\r"); i >= 0 {
				text = text[:i]
			}
			return start, rules.Shorten(text)
		}
	}
	return 0, ""
}
