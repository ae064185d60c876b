//go:build !sluicetorture

package server

// mayPanic is where requests panic in a build with the tag sluicetorture; see
// panics_on.go. Else it is nothing, and costs nothing.
func mayPanic(place) {}
