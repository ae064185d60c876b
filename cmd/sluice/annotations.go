package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// isAnnotationFormat reports whether output is a format that attaches findings to lines of files:
// workflow commands of GitHub Actions, or SARIF (OASIS, "Static Analysis Results Interchange
// Format", 2.1.0), which code scanners and editors read.
func isAnnotationFormat(output string) bool { return output == "github" || output == "sarif" }

func (c console) writeAnnotations(output string, lines []finding) error {
	if output == "sarif" {
		return c.writeJSON(sarifOf(lines))
	}
	for _, l := range lines {
		fmt.Fprintln(c.out, workflowCommand(&l))
	}
	return nil
}

// workflowCommand returns a finding as a command of GitHub Actions:
// https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
func workflowCommand(l *finding) string {
	level := l.Severity
	if level == "note" {
		level = "notice"
	}
	value := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var properties []string
	if l.File != "" {
		properties = append(properties, "file="+property.Replace(filepath.ToSlash(l.File)))
	}
	if l.Line > 0 {
		properties = append(properties, "line="+strconv.Itoa(l.Line), "col="+strconv.Itoa(max(1, l.Column)))
	}
	properties = append(properties, "title="+property.Replace("sluice "+cmp.Or(l.Code, l.Severity)))
	return fmt.Sprintf("::%s %s::%s", level, strings.Join(properties, ","), value.Replace(l.text()))
}

// text returns the message, prefixed with the path of the rule.
func (l *finding) text() string {
	if l.Path == "" {
		return l.Message
	}
	return l.Path + ": " + l.Message
}

func sarifOf(lines []finding) map[string]any {
	type object = map[string]any
	rules := []object{}
	results := []object{}
	seen := map[string]bool{}
	for _, l := range lines {
		id := cmp.Or(l.Code, "rules")
		if !seen[id] {
			seen[id] = true
			rules = append(rules, object{"id": id})
		}
		result := object{"ruleId": id, "level": l.Severity, "message": object{"text": l.text()}}
		if l.File != "" {
			place := object{"artifactLocation": object{"uri": (&url.URL{Path: filepath.ToSlash(l.File)}).String()}}
			if l.Line > 0 {
				place["region"] = object{"startLine": l.Line, "startColumn": max(1, l.Column)}
			}
			result["locations"] = []object{{"physicalLocation": place}}
		}
		results = append(results, result)
	}
	driver := object{
		"name": "sluice", "version": version(), "informationUri": "https://github.com/sluice-ratelimit/sluice", "rules": rules,
	}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}

// positionedLine matches a line of an error that starts with a position.
var positionedLine = regexp.MustCompile(`^(.+?):(\d+)(?::(\d+))?: (?:error: )?(.*)$`)

// findingsOf returns a finding for each line of an error.
func findingsOf(err error) (lines []finding) {
	for text := range strings.Lines(err.Error()) {
		l := finding{Severity: "error", Message: strings.TrimSpace(text)}
		if m := positionedLine.FindStringSubmatch(l.Message); m != nil {
			l.File = m[1]
			l.Message = m[4]
			l.Line, _ = strconv.Atoi(m[2]) // they are digits
			l.Column, _ = strconv.Atoi(m[3])
		}
		if l.Message != "" {
			lines = append(lines, l)
		}
	}
	return lines
}
