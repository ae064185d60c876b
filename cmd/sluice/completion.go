package main

import (
	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/shell"
)

type completionCmd struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
	Words []string `arg:"" optional:"" passthrough:"" hidden:"" help:"Words of the command line to complete (after --). Prints candidates for the last word."`
}

func (k completionCmd) Run(c console, app *kong.Kong) error {
	if len(k.Words) == 0 {
		_, err := c.out.Write([]byte(shell.Script(k.Shell)))
		return err
	}
	words := k.Words
	if words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	return shell.Complete(app.Model, words).Write(c.out)
}

type manCmd struct{}

func (manCmd) Run(c console, app *kong.Kong) error { return shell.Manual(c.out, app.Model, version()) }
