package rules

import "fmt"

// Count returns a number with its noun: 1 limit, 2 limits.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
