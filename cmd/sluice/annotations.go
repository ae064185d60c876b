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

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"` // error, warning or note
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysicalLocation `json:"physicalLocation"`
	}
	sarifPhysicalLocation struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
)

func sarifOf(lines []finding) sarifLog {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{
		Name: "sluice", Version: version(), InformationURI: "https://github.com/sluice-ratelimit/sluice", Rules: []sarifRule{},
	}
	seen := map[string]bool{}
	for _, l := range lines {
		id := cmp.Or(l.Code, "rules")
		if !seen[id] {
			seen[id] = true
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{id})
		}
		r := sarifResult{RuleID: id, Level: l.Severity, Message: sarifText{l.text()}}
		if l.File != "" {
			location := sarifPhysicalLocation{Artifact: sarifArtifact{(&url.URL{Path: filepath.ToSlash(l.File)}).String()}}
			if l.Line > 0 {
				location.Region = &sarifRegion{l.Line, max(1, l.Column)}
			}
			r.Locations = []sarifLocation{{location}}
		}
		run.Results = append(run.Results, r)
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
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
