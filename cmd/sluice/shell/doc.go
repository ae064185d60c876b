// Package shell completes the command line for bash, zsh and fish, and writes the manual page. Both
// are derived from Kong's model of the command line, so they include every flag.
package shell
