package report

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Page writes Markdown to W. Err is its first error.
type Page struct {
	W   io.Writer
	Err error
}

// Line writes a line.
func (p *Page) Line(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format+"\n", args...)
	}
}

// Row writes a row of a table.
func (p *Page) Row(cells ...string) { p.Line("| %s |", strings.Join(cells, " | ")) }

// Head writes the header of a table.
func (p *Page) Head(cells ...string) {
	p.Row(cells...)
	p.Line("|%s", strings.Repeat(" --- |", len(cells)))
}

// Command writes the shell command that runs the program in folder of this module again.
func (p *Page) Command(folder string, args []string) {
	words := []string{"cd bench && go run ./" + folder}
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " '\"$;") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	p.Line("    %s\n", strings.Join(words, " "))
}

// Processor returns the name of this machine's processor, or its architecture if the name is
// unknown.
func Processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, rest, _ := strings.Cut(string(info), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	if model := strings.TrimLeft(line, "\t :"); model != "" {
		return model
	}
	return runtime.GOARCH
}
