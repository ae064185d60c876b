package shell

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
)

// The scripts call the program for each completion, so they do not contain its flags.
var (
	//go:embed sluice.bash
	bash string
	//go:embed sluice.zsh
	zsh string
	//go:embed sluice.fish
	fish string
)

// Script returns the completion script of a shell: bash, zsh or fish.
func Script(shell string) string {
	return map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
}

// Write writes a completion in the format of the scripts: one line for each candidate, with its
// help after a tab, and a line :files if file names are candidates too.
func (c Completion) Write(w io.Writer) error {
	var b strings.Builder
	for _, word := range c.Words {
		if strings.ContainsAny(word.Text, "\t\n\r") {
			continue // the format cannot represent it
		}
		help, _, _ := strings.Cut(word.Help, "\n")
		fmt.Fprintf(&b, "%s\t%s\n", word.Text, help)
	}
	if c.Files {
		b.WriteString(":files\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
