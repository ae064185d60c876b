package script

import (
	"crypto/sha1" //nolint:gosec // the name that servers give to a script
	_ "embed"
	"encoding/hex"
)

// A script is known to servers that have seen it by a hash.
type script struct{ text, sha string }

var (
	//go:embed counters.lua
	counters string
	//go:embed algorithms.lua
	algorithms string
	//go:embed companions.lua
	beside string
	//go:embed decide.lua
	decide string
	//go:embed sync.lua
	repay string

	// Decides decides a batch of charges in the store. See [call] and [reply] for what it takes
	// and gives.
	Decides = newScript(counters + algorithms + beside + decide)
	// Repays charges what is owed.
	Repays = newScript(counters + repay)
)

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}
