// Package report presents the result of a simulation: as JSON by the tags of its fields, as text
// for a terminal ([Report.WriteText]) and as an HTML page with diagrams ([Report.WriteHTML]). It
// only formats what a [Report] contains.
package report
