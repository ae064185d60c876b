package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// The page is the same for each state: its script reads [StatePath] and shows the state.
var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page_tables.js
	tablesScript string
	//go:embed page.js
	mainScript string

	pageScript = tablesScript + mainScript
)

// acceptsHTML reports whether the client is a browser.
func acceptsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// renderPage returns the page for a caller with the given right.
func renderPage(right access.Right) string {
	name := "read"
	if right >= access.Write {
		name = "write"
	}
	return strings.NewReplacer("{{right}}", name, "{{style}}", pageStyle, "{{script}}", pageScript).Replace(pageText)
}

// pagePolicy returns the Content-Security-Policy of the page. It allows its own script and style,
// by hash, and requests to its origin.
var pagePolicy = sync.OnceValue(func() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash(pageScript) + "; style-src " + hash(pageStyle) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// writePage serves / to browsers as a page of the state, and to other clients as a list of paths.
func (a *API) writePage(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Vary", "Accept")
	from, err := a.guard.authenticate(http.Header{}, r)
	text := debugIndex
	if acceptsHTML(r) && err == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		text = renderPage(from.right)
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Content-Security-Policy", pagePolicy())
	} else {
		header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	_, _ = io.WriteString(&web.PacedWriter{ResponseWriter: w}, text) // an error means that the client has disconnected
}
