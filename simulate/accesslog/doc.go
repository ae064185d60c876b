// Package accesslog reads requests from access logs of text and JSON. A request
// has a time and named field values.
//
// [Recognise] detects the [Format] of logs. The caller selects the fields that it needs
// ([Format.Select], [Expression.Resolve]) and then calls [Format.Prepare]. [ReadChunks]
// splits a log into chunks of complete lines. A [Reader] per goroutine parses chunks and calls a
// function with the [Line] of each request.
//
// # Ambiguous and unreadable lines
//
// Text logs of Envoy escape nothing, so a line may have several readings. A value that differs
// between them is ambiguous ([Line.IsAmbiguous]); the package never guesses. An unreadable line is
// skipped and counted ([Counts]).
//
// # Cost
//
// Values are views of the line, and reading a line allocates nothing. A text line costs one search
// per literal of its format.
package accesslog
