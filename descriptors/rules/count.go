package rules

import "fmt"

// Count writes 1 limit, or 2 limits.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
