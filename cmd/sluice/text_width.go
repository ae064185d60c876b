package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// runeWidth returns how many columns of a terminal a rune takes, or more: who is given too many cuts a line too early, and with
// too few the terminal breaks it.
func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r < 0x1100 || 0x2000 <= r && r < 0x2600: // all letters but those of the East; punctuation, arrows, blocks
		return 1
	}
	return 2
}

// textWidth returns how many columns a text takes, or more.
func textWidth(text string) (sum int) {
	for _, r := range text {
		sum += runeWidth(r)
	}
	return sum
}

// fitRunes returns how many of these runes stand in so many columns.
func fitRunes(text []rune, room int) int {
	for i, r := range text {
		if room -= runeWidth(r); room < 0 {
			return i
		}
	}
	return len(text)
}

// truncate returns the beginning of a text that is too long for so many columns.
func (v *view) truncate(text string, room int) string {
	all := []rune(text)
	if fitRunes(all, room) == len(all) {
		return text
	}
	mark := "~"
	if v.utf8 {
		mark = "…"
	}
	return string(all[:fitRunes(all, room-1)]) + mark
}

// printable returns s for the view's terminal, which may show no more than ASCII.
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

// printable returns s for a terminal, without what would move its cursor or change its colours.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
