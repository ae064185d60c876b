// Package examples runs what examples/ shows, with the real Envoy and the real
// sluice: the commands and transcripts of its READMEs, and the promises that a
// transcript cannot show.
package examples
