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
	switch {
	case line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t"):
		message += "; indent with spaces, not tabs"
	case strings.Contains(message, "alias") || strings.Contains(message, "unknown anchor"):
		message += "; text that begins with * needs quotes"
	}
	p.report("", "", line, col, message)
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
}

// template matches templates of Helm and similar tools. To YAML an unquoted one is a map.
var template = regexp.MustCompile(`\{\{.*?\}\}`)

const templateRemedy = "give sluice the rendered text, such as the output of helm template"
