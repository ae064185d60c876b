// Package blocks tests docs/blocks.md with three sluices and a real Valkey. A ledger
// assigns each admitted hit to its window, and verifies the limits with and without faults. For
// buckets, sliding windows and requests with several limits it is a list of all hits, each of which
// was admitted between the start and the end of its request, and verifies each interval of time.
package blocks
