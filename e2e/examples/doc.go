// Package examples runs examples/ with the real Envoy and sluice: the commands and transcripts in
// the READMEs, and promises that a transcript cannot show.
package examples
