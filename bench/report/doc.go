// Package report writes the pages of the benchmarks: Markdown, with the command
// that made it, the machine, and what several rounds found.
package report
