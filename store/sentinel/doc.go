// Package sentinel finds the primary that Sentinels know, and hears of a failover while it goes on.
//
// A [Watch] asks all Sentinels and takes what most of those say that answer. It makes a goroutine for each question and
// Sentinel, and one for each that it listens to. Its methods may be called concurrently.
package sentinel
