// Package sentinel finds the primary by a vote of Sentinels.
//
// A [Watch] queries all Sentinels and uses the most frequent answer. Each query has a goroutine per
// Sentinel. Its methods may be called concurrently.
package sentinel
