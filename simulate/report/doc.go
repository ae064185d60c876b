// Package report is what a simulation found, as JSON by the tags of its fields, as text for a
// terminal ([Report.WriteText]) and as a page of HTML with pictures ([Report.WriteHTML]).
//
// It counts nothing and knows neither rules nor logs: a [Report] has what is to be shown.
package report
