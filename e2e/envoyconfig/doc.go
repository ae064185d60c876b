// Package envoyconfig compares the calls that package envoyconfig computes with those of a real
// Envoy, and its errors and findings with Envoy's behaviour.
package envoyconfig
