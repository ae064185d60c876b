// Package api knows the messages of Envoy's API, as far as package envoyconfig reads them, and
// judges whether a tree of fields is one.
package api
