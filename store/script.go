package store

import (
	"crypto/sha1" //nolint:gosec // the name that servers give to a script
	_ "embed"
	"encoding/hex"
)

// decideScript decides a batch of charges in the store. See [arguments] and [reply] for what it
// takes and gives.
//
//go:embed decide.lua
var decideScript string

// decideSHA names decideScript to a server that has seen it.
var decideSHA = shaOf(decideScript)

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
