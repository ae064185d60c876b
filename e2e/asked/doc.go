// Package asked holds what package envoyconfig says that Envoy asks against what the real
// Envoy asks.
package asked
