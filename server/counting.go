//go:build !uncounted

package server

// counting says that requests are counted, which they always are: a build with the
// tag uncounted is for measuring what counting costs.
const counting = true
