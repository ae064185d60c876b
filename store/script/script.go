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
	countersText string
	//go:embed algorithms.lua
	algorithmsText string
	//go:embed companions.lua
	companionsText string
	//go:embed decide.lua
	decideText string
	//go:embed sync.lua
	syncText string

	// DecideScript decides a batch of charges in the store. See [call] and [reply] for what it takes
	// and gives.
	DecideScript = newScript(countersText + algorithmsText + companionsText + decideText)
	// SyncScript charges what is owed.
	SyncScript = newScript(countersText + syncText)
)

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}
