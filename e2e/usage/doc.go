// Package usage compares what /usage and limit_notice say of real processes with a ledger of the
// hits that were sent.
package usage
