// Package sentinel finds the primary by a vote of Sentinels, and follows the progress of a
// failover.
//
// A [Watch] queries all Sentinels and uses the most frequent answer. Each query has a goroutine per
// Sentinel, and so has each subscription. Its methods may be called concurrently.
package sentinel
