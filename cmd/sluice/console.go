package main

import (
	"encoding/json"
	"errors"
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
