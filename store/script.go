package store

import (
	"crypto/sha1" //nolint:gosec // the name that servers give to a script
	_ "embed"
	"encoding/hex"
)

var (
	//go:embed times.lua
	times string
	//go:embed decide.lua
	decide string
	//go:embed repay.lua
	repay string

	// decideScript decides a batch of charges in the store. See [call] and [reply] for what it takes
	// and gives.
	decideScript = times + decide
	// repayScript charges what is owed.
	repayScript = times + repay
)

// decideSHA and repaySHA name the scripts to a server that has seen them.
var decideSHA, repaySHA = shaOf(decideScript), shaOf(repayScript)

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
