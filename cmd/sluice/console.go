package main

import (
	"encoding/json"
	"errors"
	"io"
)

// console is where commands read and print.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// writeJSON writes a value for programs to read, and people too.
func (c console) writeJSON(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// An output is where a command prints. The first error of printing ends the command, and run tells
// of it: no command need look at it.
type output struct {
	to     io.Writer
	cancel func()
	err    error
}

// Write prints, unless that has failed before.
func (o *output) Write(p []byte) (n int, err error) {
	if o.err == nil {
		n, o.err = o.to.Write(p)
	}
	if o.err != nil {
		o.cancel()
	}
	return n, o.err
}

// errFailed is returned by a command that has printed why.
var errFailed = errors.New("failed")
