//go:build uncounted

package server

const counting = false
