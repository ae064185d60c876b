package admin

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// PageText is the template of the page, and DebugIndex the list of pages.
var PageText, DebugIndex = pageText, debugIndex

// RenderPage returns the page of a state.
func RenderPage(s *live.State) (string, error) {
	var b bytes.Buffer
	err := page.ExecuteTemplate(&b, "page", newPageState(s))
	return b.String(), err
}
