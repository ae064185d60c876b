package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// transcript prints the output. It ignores write errors: a user who closes the output does not want
// it.
type transcript struct {
	out      io.Writer
	colour   bool
	requests int
}

// Terminal colours (ECMA-48 SGR).
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
)

func (t *transcript) paint(code, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (t *transcript) heading(number int, title string) {
	fmt.Fprintf(t.out, "\n%s\n", t.paint(bold, fmt.Sprintf("%d. %s", number, title)))
}

func (t *transcript) command(line string) { fmt.Fprintf(t.out, "   $ %s\n", line) }

func (t *transcript) note(format string, args ...any) {
	fmt.Fprintf(t.out, "   %s\n", t.paint(faint, fmt.Sprintf(format, args...)))
}

func (t *transcript) closing(format string, args ...any) {
	fmt.Fprintf(t.out, "\n%s\n", fmt.Sprintf(format, args...))
}

// answer prints a status and the rate limit headers.
func (t *transcript) answer(status int, header http.Header) {
	t.requests++
	colour := green
	if status >= http.StatusBadRequest {
		colour = red
	}
	var parts []string
	for _, name := range []string{"x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"} {
		if value := header.Get(name); value != "" {
			parts = append(parts, name+": "+value)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no limit applies")
	}
	fmt.Fprintf(t.out, "   %s  %s\n", t.paint(colour, strconv.Itoa(status)), strings.Join(parts, "  "))
	if limit := header.Get("x-ratelimit-limit"); status == http.StatusTooManyRequests && limit != "" {
		fmt.Fprintf(t.out, "        x-ratelimit-limit: %s\n", limit)
	}
}
