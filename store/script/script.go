package script

import (
	"crypto/sha1" //nolint:gosec // the name that servers give to a script
	_ "embed"
	"encoding/hex"
)

// A script is a Lua script. Servers that have run it know it by its hash.
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

	// DecideScript decides a batch of charges. [Call] has its arguments, and [reply] reads its
	// reply.
	DecideScript = newScript(countersText + algorithmsText + companionsText + decideText)
	// SyncScript charges unsynced hits.
	SyncScript = newScript(countersText + syncText)
)

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}
