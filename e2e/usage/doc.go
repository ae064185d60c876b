// Package usage has clients of a real Envoy ask for their usage, and for that of others.
package usage
