package shell

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion has the candidates for the last word of a command line.
type Completion struct {
	Words []Word
	Files bool // file names are candidates too
}

// Word is a candidate and its help.
type Word struct{ Text, Help string }

// Complete completes the last of words, which are those after the name of the program.
func Complete(app *kong.Application, words []string) Completion {
	l := line{command: app.Node}
	last := words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		l.consume(word)
	}
	return l.complete(last)
}

// line is the parsed part of a command line, before the word to complete.
type line struct {
	command    *kong.Node
	pending    *kong.Flag // its value is the next word
	flagsEnded bool       // an argument -- has ended the flags
	argCount   int        // positional arguments so far
}

// selected returns the command, or the default command.
func (l *line) selected() *kong.Node {
	if l.command.DefaultCmd != nil {
		return l.command.DefaultCmd
	}
	return l.command
}

func (l *line) consume(word string) {
	switch name, _, has := strings.Cut(word, "="); {
	case l.pending != nil:
		l.pending = nil
	case l.flagsEnded:
		l.argCount++
	case word == "--":
		l.flagsEnded = true
	case strings.HasPrefix(word, "-"):
		if flag := l.flag(name); flag != nil && !flag.IsBool() && !has {
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

// flags returns the visible flags of the command.
func (l *line) flags() []*kong.Flag { return slices.Concat(l.selected().AllFlags(true)...) }

// flag returns the flag with a name such as --config or -c, or nil.
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
		return flagValues(l.pending).withPrefix(word)
	case !l.flagsEnded && has && strings.HasPrefix(word, "--"):
		flag := l.flag(name)
		if flag == nil || flag.IsBool() {
			return Completion{}
		}
		c := flagValues(flag).withPrefix(value)
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
			c.Words = append(c.Words, Word{"--no-" + flag.Name, "Disables: " + flag.Help})
		}
	}
	return c
}

// flagValues returns candidates for the value of a flag.
func flagValues(flag *kong.Flag) Completion {
	isFile := slices.Contains([]string{"PATH", "FILE", "ENVOY"}, flag.PlaceHolder) || flag.Tag.Type == "existingfile"
	return Completion{Words: enumWords(flag.Value), Files: isFile}
}

// enumWords returns the values of an enumeration, nil for other values.
func enumWords(v *kong.Value) (words []Word) {
	if v.Enum == "" {
		return nil
	}
	for _, value := range v.EnumSlice() {
		words = append(words, Word{Text: value})
	}
	return words
}

// withPrefix removes the words that do not start with typed.
func (c Completion) withPrefix(typed string) Completion {
	c.Words = slices.DeleteFunc(c.Words, func(w Word) bool { return !strings.HasPrefix(w.Text, typed) })
	return c
}
