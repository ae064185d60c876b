// Package accesslog reads access logs: lines of text, JSON or CSV become requests, each of
// which has a time and values by field.
//
// [Recognise] finds the [Format] of logs. Who reads them says which fields are wanted
// ([Format.Want], [Expression.Resolve]) and settles the format. [Format.Chunks] cuts a log
// into chunks of whole lines, and a [Reader] of each goroutine reads chunks: it calls a
// function with the [Line] of each request.
//
// # What is not known
//
// Nothing is guessed. A value of a line that can be read in several ways, because text logs
// escape nothing, is not certain ([Line.IsUnsure]). A line that cannot be read costs that
// line, and is counted and shown ([Counts]).
//
// # Cost
//
// Values are views of the line, and reading a line allocates nothing. A line of text costs
// one search for each thing that stands between values.
package accesslog
