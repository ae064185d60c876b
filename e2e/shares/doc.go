// Package shares compares guaranteed shares and shared counters (charge and counter) of real
// processes with a model that was written from their description.
package shares
