// Package xds tests the real binary with rules from a management server.
package xds
