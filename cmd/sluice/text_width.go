package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// runeWidth returns an upper bound of the columns that a rune takes on a terminal. A value too high
// truncates a line too early; one too low makes the terminal wrap it.
func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r < 0x1100 || 0x2000 <= r && r < 0x2600: // alphabets; punctuation, arrows, block elements
		return 1
	}
	return 2
}

// textWidth returns an upper bound of the columns that a text takes.
func textWidth(text string) (sum int) {
	for _, r := range text {
		sum += runeWidth(r)
	}
	return sum
}

// fitRunes returns the number of leading runes that fit into the given number of columns.
func fitRunes(text []rune, columns int) int {
	for i, r := range text {
		if columns -= runeWidth(r); columns < 0 {
			return i
		}
	}
	return len(text)
}

// truncate shortens a text to the given number of columns.
func (v *view) truncate(text string, columns int) string {
	all := []rune(text)
	if fitRunes(all, columns) == len(all) {
		return text
	}
	mark := "~"
	if v.utf8 {
		mark = "…"
	}
	return string(all[:fitRunes(all, columns-1)]) + mark
}

// printable returns s for the terminal of the view, which may be limited to ASCII.
func (v *view) printable(s string) string {
	s = printable(s)
	if v.utf8 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, s)
}

// printable replaces the characters of s that could move the cursor of a terminal or change its
// colours.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
