package examples_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// readme contains the commands of an example's README and their output.
type readme struct {
	// starts contains the lines of sh blocks: the programs that run throughout.
	starts []string
	// steps contains the commands of console blocks, in order.
	steps []step
	// log contains the lines of log blocks, printed by Envoy.
	log []string
}

// step is a command after a $, with its output below it.
type step struct {
	command string
	want    []string
}

// readReadme parses an example's README. Other kinds of fenced blocks are ignored.
func readReadme(path string) (*readme, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r readme
	fence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = line
		case strings.HasPrefix(line, "```"):
			fence = ""
		case line == "":
		case fence == "```sh":
			r.starts = append(r.starts, line)
		case fence == "```log":
			r.log = append(r.log, line)
		case fence == "```console" && strings.HasPrefix(line, "$ "):
			r.steps = append(r.steps, step{command: line[2:]})
		case fence == "```console":
			if len(r.steps) == 0 {
				return nil, fmt.Errorf("%s: output %q precedes the first command", path, line)
			}
			last := &r.steps[len(r.steps)-1]
			last.want = append(last.want, line)
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("%s: the fence %q is not closed", path, fence)
	}
	return &r, nil
}

// incidental matches headers that do not concern limits, which a README need not show.
var incidental = regexp.MustCompile(`^(date|server|content-type|content-length|x-envoy-upstream-service-time): `)

// differences compares the output of a command with the README. In the README, "..." matches any
// text within a line.
func (s step) differences(output string) []string {
	got := comparableLines(output, s.want)
	for i, want := range s.want {
		if i == len(got) {
			return []string{fmt.Sprintf("ends before %q", want)}
		}
		if !matches(want, got[i]) {
			return []string{fmt.Sprintf("line %d is %q, want %q", i+1, got[i], want)}
		}
	}
	if len(got) > len(s.want) {
		return []string{fmt.Sprintf("the output continues with %q", got[len(s.want)])}
	}
	return nil
}

// comparableLines returns the lines of an output without empty lines and without incidental ones
// that the README does not show.
func comparableLines(output string, want []string) []string {
	wanted := make(map[string]bool)
	for _, line := range want {
		wanted[incidental.FindString(line)] = true
	}
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \r\n")
		header := incidental.FindString(line)
		if line != "" && (header == "" || wanted[header]) {
			lines = append(lines, line)
		}
	}
	return lines
}

func matches(pattern, line string) bool {
	parts := strings.Split(pattern, "...")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(line)
}
