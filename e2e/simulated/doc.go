// Package simulated compares simulations of access logs that the real Envoy wrote with the
// decisions of the real service.
package simulated
