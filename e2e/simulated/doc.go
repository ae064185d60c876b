// Package simulated holds what package simulate says of access logs that the real Envoy
// wrote against what the real service decided.
package simulated
