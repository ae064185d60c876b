// Package process fits the process into what its surroundings give it: the container's
// memory and the files that it may open.
package process
