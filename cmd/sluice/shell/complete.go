package shell

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Rules are those that a command line names. Its methods return nothing for rules that do not load:
// a completion has no place for an error.
type Rules interface {
	// Domains are the domains of the rules at the paths, or of serve's default without a path.
	Domains(paths []string) []string
	// Keys are what may come next in a descriptor: keys, and key=value where the rules have the value.
	Keys(paths []string, domain, descriptor string) []string
}

// Completion is what may stand in place of the last word of a command line.
type Completion struct {
	Words   []Word
	Files   bool // names of files may, too
	NoSpace bool // the word goes on behind each of Words, as after a key
}

// Word is a candidate, with what it means.
type Word struct{ Text, Help string }

// Complete completes the last of the words that follow the program's name.
func Complete(app *kong.Application, rules Rules, words []string) Completion {
	l := line{command: app.Node, rules: rules}
	last := words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		l.consume(word)
	}
	return l.complete(last)
}

// line is a command line up to the word that is completed.
type line struct {
	command    *kong.Node
	rules      Rules
	pending    *kong.Flag // its value comes next
	flagsEnded bool       // -- has come, so that no flag follows
	argCount   int        // arguments of the command

	paths  []string // of rules
	domain string
}

// selected is the command: the default one if none was named.
func (l *line) selected() *kong.Node {
	if l.command.DefaultCmd != nil {
		return l.command.DefaultCmd
	}
	return l.command
}

func (l *line) consume(word string) {
	switch name, value, has := strings.Cut(word, "="); {
	case l.pending != nil:
		l.recordValue(l.pending, word)
		l.pending = nil
	case l.flagsEnded:
		l.argCount++
	case word == "--":
		l.flagsEnded = true
	case strings.HasPrefix(word, "-"):
		switch flag := l.flag(name); {
		case flag == nil || flag.IsBool():
		case has:
			l.recordValue(flag, value)
		default:
			l.pending = flag
		}
	default:
		for _, child := range l.command.Children {
			if child.Name == word && !child.Hidden {
				l.command = child
				return
			}
		}
		l.argCount++
	}
}

func (l *line) recordValue(flag *kong.Flag, recordValue string) {
	switch flag.Name {
	case "config":
		l.paths = append(l.paths, recordValue)
	case "domain":
		l.domain = recordValue
	}
}

// flags are those that the command takes and its help shows.
func (l *line) flags() []*kong.Flag { return slices.Concat(l.selected().AllFlags(true)...) }

// flag returns the flag that a word such as --config or -c names, or nil.
func (l *line) flag(word string) *kong.Flag {
	for _, flag := range l.flags() {
		if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}

func (l *line) complete(word string) Completion {
	switch name, value, has := strings.Cut(word, "="); {
	case l.pending != nil:
		return l.flagValues(l.pending, word).withPrefix(word)
	case !l.flagsEnded && has && strings.HasPrefix(word, "--"):
		flag := l.flag(name)
		if flag == nil || flag.IsBool() {
			return Completion{}
		}
		c := l.flagValues(flag, value).withPrefix(value)
		for i := range c.Words {
			c.Words[i].Text = name + "=" + c.Words[i].Text
		}
		return c
	case !l.flagsEnded && strings.HasPrefix(word, "-"):
		return l.flagNames().withPrefix(word)
	}
	var c Completion
	if !l.flagsEnded && l.argCount == 0 {
		for _, child := range l.command.Children {
			if !child.Hidden {
				c.Words = append(c.Words, Word{child.Name, child.Help})
			}
		}
	}
	if args := l.selected().Positional; len(args) > 0 {
		arg := args[min(l.argCount, len(args)-1)]
		if l.argCount < len(args) || arg.IsCumulative() {
			c.Words = append(c.Words, enumWords(arg)...)
			c.Files = arg.Name == "path" || arg.Name == "envoy"
		}
	}
	return c.withPrefix(word)
}

func (l *line) flagNames() (c Completion) {
	for _, flag := range l.flags() {
		c.Words = append(c.Words, Word{"--" + flag.Name, flag.Help})
		if flag.Tag.Negatable != "" {
			c.Words = append(c.Words, Word{"--no-" + flag.Name, "Not: " + flag.Help})
		}
	}
	return c
}

// flagValues is what may be a flag's value.
func (l *line) flagValues(flag *kong.Flag, value string) (c Completion) {
	switch flag.Name {
	case "domain":
		for _, domain := range l.rules.Domains(l.paths) {
			c.Words = append(c.Words, Word{Text: domain})
		}
		return c
	case "descriptor":
		for _, key := range l.rules.Keys(l.paths, l.domain, value) {
			c.Words = append(c.Words, Word{Text: key})
		}
		c.NoSpace = true
		return c
	}
	c.Words = enumWords(flag.Value)
	switch {
	case flag.PlaceHolder == "PATH", flag.PlaceHolder == "FILE", flag.PlaceHolder == "ENVOY", flag.Tag.Type == "existingfile":
		c.Files = true
	}
	return c
}

// enumWords are the values of which one must be chosen, if that is so.
func enumWords(v *kong.Value) (words []Word) {
	if v.Enum == "" {
		return nil
	}
	for _, value := range v.EnumSlice() {
		words = append(words, Word{Text: value})
	}
	return words
}

// withPrefix keeps the words that begin as what is typed does.
func (c Completion) withPrefix(typed string) Completion {
	c.Words = slices.DeleteFunc(c.Words, func(w Word) bool { return !strings.HasPrefix(w.Text, typed) })
	return c
}
