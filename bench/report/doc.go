// Package report writes the pages of the benchmarks in Markdown: the command, the machine, and the
// results of several rounds.
package report
