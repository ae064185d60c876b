package rules

import (
	"fmt"
	"strings"
	"unicode"
)

// Suggest returns the candidate that word is most likely a misspelling of, or "". It ignores letter
// case, camelCase, hyphens and plurals.
func Suggest(word string, candidates []string) string {
	if len(word) > 64 {
		return "" // computing the distance takes quadratic time
	}
	word = snakeCase(word)
	best := ""
	bestDistance := 1 + len(word)/4
	for _, c := range candidates {
		name := snakeCase(c)
		if len(word) >= 3 && strings.HasPrefix(name, word) {
			return c // an abbreviation: min, sec
		}
		if d := EditDistance(word, name); d <= bestDistance && (best == "" || d < bestDistance) {
			best = c
			bestDistance = d
		}
	}
	return best
}

// snakeCase turns rateLimit, RateLimit and rate-limit into rate_limit.
func snakeCase(s string) string {
	var b strings.Builder
	lower := false
	for _, r := range s {
		switch {
		case r == '-' || r == ' ':
			b.WriteByte('_')
			lower = false
		case unicode.IsUpper(r):
			if lower {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
			lower = false
		default:
			b.WriteRune(r)
			lower = unicode.IsLower(r) || unicode.IsDigit(r)
		}
	}
	return b.String()
}

// EditDistance returns how many letters have to be inserted, deleted, replaced or swapped with
// their neighbour to turn a into b.
func EditDistance(a, b string) int {
	n := len(b) + 1
	rows := make([]int, 3*n)
	before := rows[:n]
	last := rows[n : 2*n]
	row := rows[2*n:]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// DidYouMean returns the end of a message that offers the result of [Suggest], or "" if there is none.
func DidYouMean(word string, candidates []string) string {
	if s := Suggest(word, candidates); s != "" {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}
