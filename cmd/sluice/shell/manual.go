package shell

import (
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// manualName is the name of the manual page, whatever the program's file is named.
const manualName = "sluice"

// Manual writes the manual page, in section 1 and with the macros of man(7). The footer has the
// version.
func Manual(w io.Writer, app *kong.Application, version string) error {
	p := &page{}
	p.macro("TH", strings.ToUpper(manualName), "1", "", manualName+" "+version, "")
	p.macro("SH", "NAME")
	p.text(manualName + " - " + app.Help)
	p.macro("SH", "SYNOPSIS")
	for _, command := range app.Leaves(true) {
		p.macro("B", manualName+" "+command.Path())
		p.text(strings.TrimSpace(strings.TrimPrefix(command.Summary(), command.Path())))
		p.macro("br")
	}
	p.macro("SH", "COMMANDS")
	p.text("The default command is serve.")
	for _, command := range app.Leaves(true) {
		p.macro("SS", manualName+" "+command.Summary())
		p.text(command.Help)
		p.macro("PP")
		for line := range strings.Lines(command.Detail) {
			if line = strings.TrimSpace(line); line != "" {
				p.text(line)
				p.macro("br")
			}
		}
		for _, arg := range command.Positional {
			p.macro("TP")
			p.macro("I", arg.Summary())
			p.text(arg.Help)
		}
		group := ""
		for _, flag := range command.Flags {
			if flag.Hidden {
				continue
			}
			if flag.Group != nil && flag.Group.Title != group {
				group = flag.Group.Title
				p.macro("PP")
				p.text(group)
			}
			p.macro("TP")
			p.macro("B", flag.String())
			p.text(flag.Help)
		}
	}
	p.macro("SH", "EXIT STATUS")
	p.text("0 for success, 1 for failure, 2 for a wrong command line or environment.")
	_, err := io.WriteString(w, strings.Join(p.lines, "\n")+"\n")
	return err
}

// page is text in the macros of man(7).
type page struct{ lines []string }

func (p *page) macro(name string, args ...string) {
	for i, arg := range args {
		args[i] = `"` + strings.ReplaceAll(escape(arg), `"`, `\(dq`) + `"`
	}
	p.lines = append(p.lines, strings.Join(append([]string{"." + name}, args...), " "))
}

func (p *page) text(text string) {
	for line := range strings.SplitSeq(escape(text), "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line // so that it is not a macro
		}
		p.lines = append(p.lines, line)
	}
}

// escape escapes text for troff. Hyphens become minus signs, which can be copied from a terminal.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
}
