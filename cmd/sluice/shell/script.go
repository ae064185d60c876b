package shell

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
)

// The scripts ask the program itself for each completion, so they need not know its flags.
var (
	//go:embed sluice.bash
	bash string
	//go:embed sluice.zsh
	zsh string
	//go:embed sluice.fish
	fish string
)

// Script returns what makes a shell, which is bash, zsh or fish, complete.
func Script(shell string) string {
	return map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
}

// Write writes a completion as the scripts read it: a candidate a line, its help behind a tab, and
// what else there is to know on lines that begin with a colon.
func (c Completion) Write(w io.Writer) error {
	var b strings.Builder
	for _, word := range c.Words {
		if strings.ContainsAny(word.Text, "\t\n\r") {
			continue // no line of a shell could hold it
		}
		help, _, _ := strings.Cut(word.Help, "\n")
		fmt.Fprintf(&b, "%s\t%s\n", word.Text, help)
	}
	if c.Files {
		b.WriteString(":files\n")
	}
	if c.NoSpace {
		b.WriteString(":nospace\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
