// Package blocks tests docs/store.md, "Blocks", with three sluices and a real Valkey. A ledger
// assigns each admitted hit to its window, and verifies the limits with and without faults.
package blocks
