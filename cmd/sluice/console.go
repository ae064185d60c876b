package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/term"
)

// console has the standard streams of a command.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// writeJSON writes a value as indented JSON.
func (c console) writeJSON(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// outputFlag selects the output of commands that print a report.
type outputFlag struct {
	Output string `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Output format: text, or json with the fields in docs/reference.md."`
}

// jsonVersion is the version of the JSON of all reports. It stays the same when fields are added.
const jsonVersion = 1

// print writes a report as JSON after its version, or calls text.
func (f outputFlag) print(c console, report any, text func() error) error {
	if f.Output != "json" {
		return text()
	}
	var fields, indented bytes.Buffer
	enc := json.NewEncoder(&fields)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(report); err != nil {
		return err
	}
	object := fmt.Appendf(nil, `{"version": %d`, jsonVersion)
	rest := fields.Bytes()[1:]
	if rest[0] != '}' {
		object = append(object, ", "...)
	}
	if err := json.Indent(&indented, append(object, rest...), "", "  "); err != nil {
		return fmt.Errorf("print the report, which is not an object: %w", err)
	}
	_, err := indented.WriteTo(c.out)
	return err
}

// terminal returns the terminal to which the command prints, or nil if it does not print to one.
func (c console) terminal() *os.File {
	to := c.out
	if o, ok := to.(*output); ok {
		to = o.to
	}
	if f, ok := to.(*os.File); ok && term.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// output is the standard output of a command. The first error of a write cancels the command, and
// run reports it, so commands need not check for it.
type output struct {
	to     io.Writer
	cancel func()
	err    error
}

// Write writes p, unless an earlier write has failed.
func (o *output) Write(p []byte) (n int, err error) {
	if o.err == nil {
		n, o.err = o.to.Write(p)
	}
	if o.err != nil {
		o.cancel()
	}
	return n, o.err
}

// errFailed is returned by a command that has already printed the reason.
var errFailed = errors.New("failed")
