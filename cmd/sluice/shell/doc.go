// Package shell lets a shell complete sluice's command line, and writes its manual page. Both follow
// from the model of the command line, so that a new flag is in them at once.
package shell
