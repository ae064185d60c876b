package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxActive is the maximum number of limits that a page shows with current rates. The page lists
// the others without rates, as of the time when it was loaded.
const maxActive = 200

//go:embed page.html
var pageText string

var page = template.Must(template.New("").Funcs(template.FuncMap{
	"clock":   func(t time.Time) string { return t.Local().Format(time.TimeOnly) },
	"rate":    rateText,
	"percent": func(f float64) string { return fmt.Sprintf("%.0f%%", 100*f) },
	"fields":  telemetry.FieldsText,
	"active":  listActive,
	"idle":    listIdle,
}).Parse(pageText))

// pageHandler serves / to browsers as a page of the state, and to other clients as a list of paths.
type pageHandler struct {
	*API

	policy string
}

func newPageHandler(a *API) *pageHandler {
	return &pageHandler{a, pagePolicy()}
}

// acceptsHTML reports whether the client is a browser.
func acceptsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// pagePolicy returns the Content-Security-Policy of the page. It allows its own script and style,
// by hash, and requests to its origin.
func pagePolicy() string {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "page", &pageState{State: &live.State{}}); err != nil {
		panic(err) //nolint:forbidigo // a bug that tests find
	}
	hash := func(element string) string {
		inner := regexp.MustCompile("(?s)<" + element + ">(.*?)</" + element + ">").FindSubmatch(b.Bytes())
		sum := sha256.Sum256(inner[1])
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash("script") + "; style-src " + hash("style") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// pageState is a state with the lists of all domains merged.
type pageState struct {
	*live.State
	Keys         []pageKey
	Unmatched    []pageUnmatched
	Active, Idle []pageRule
	CanReset     bool
}

type pageKey struct {
	Domain string
	live.Key
}

type pageUnmatched struct {
	Domain string
	live.Unmatched
}

type pageRule struct {
	Domain string
	live.RuleState
}

func newPageState(s *live.State) *pageState {
	p := &pageState{State: s}
	for i := range s.Domains {
		d := &s.Domains[i]
		for _, k := range d.DeniedKeys {
			p.Keys = append(p.Keys, pageKey{d.Domain, k})
		}
		for _, u := range d.Unmatched {
			p.Unmatched = append(p.Unmatched, pageUnmatched{d.Domain, u})
		}
		for _, r := range d.Rules {
			if r.Line != nil || r.Hits > 0 {
				p.Active = append(p.Active, pageRule{d.Domain, r})
			} else {
				p.Idle = append(p.Idle, pageRule{d.Domain, r})
			}
		}
	}
	slices.SortStableFunc(p.Keys, func(a, b pageKey) int { return live.CompareKeys(a.Key, b.Key) })
	slices.SortStableFunc(p.Active, func(a, b pageRule) int { return live.CompareRates(a.Rate, b.Rate) })
	if len(p.Active) > maxActive {
		p.Idle = slices.Concat(p.Active[maxActive:], p.Idle)
		p.Active = p.Active[:maxActive]
	}
	return p
}

func (h *pageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	from, err := h.guard.authenticate(http.Header{}, r)
	if !acceptsHTML(r) || err != nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, debugIndex) // an error means that the client has disconnected
		return
	}
	part, which := "page", AllRules
	if r.URL.RawQuery == "part=now" {
		part, which = "now", StateRules{Max: maxActive}
	}
	now, _ := h.clock.Now()
	state := newPageState(h.State(time.Unix(0, int64(now)), which))
	state.CanReset = from.right >= access.Write
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, part, state); err != nil {
		h.logger.Error("failed to render the state page", zap.Error(err))
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Security-Policy", h.policy)
	header.Set("Sluice-Rules", state.Config.Hash)
	_, _ = (&web.PacedWriter{ResponseWriter: w}).Write(b.Bytes()) // an error means that the client has disconnected
}

// drawLine draws the total and denied hits of the last five minutes.
func drawLine(b *strings.Builder, l *live.Line) {
	if l == nil || len(l.Hits) == 0 {
		return
	}
	maxHits := max(1, slices.Max(l.Hits))
	fmt.Fprintf(b, `<svg viewBox="0 0 %d 16" preserveAspectRatio="none" role="img" aria-label="hits in the last five minutes, at most %d in %d seconds">`, 4*len(l.Hits), maxHits, l.Seconds)
	bar := func(class string, i int, n uint32) {
		if n > 0 {
			height := max(0.5, 16*float64(n)/float64(maxHits))
			fmt.Fprintf(b, `<rect%s x="%d" y="%.1f" width="3" height="%.1f"/>`, class, 4*i, 16-height, height)
		}
	}
	for i := range l.Hits {
		bar("", i, l.Hits[i])
		bar(` class="d"`, i, min(l.Hits[i], l.Denied[i]))
	}
	b.WriteString("</svg>")
}

func rateText(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// listActive returns limits as table rows. It does not use a template, which takes several times
// longer, because it is called each second for each open page, with up to [maxActive] limits.
func listActive(all []pageRule) template.HTML {
	var b strings.Builder
	for i := range all {
		r := &all[i]
		denied, shadow := "", ""
		if r.Denied > 0 {
			denied = " bad"
		}
		if r.Shadow {
			shadow = ` <span class="warn">shadow, would deny ` + rateText(r.Rate.Shadow) + "/s</span>"
		}
		b.WriteString(`<tr><td class="n">` + rateText(r.Hits) + `</td><td class="n` + denied + `">` + rateText(r.Denied) +
			`</td><td class="n least">` + rateText(r.Near) + "</td><td>")
		drawLine(&b, r.Line)
		b.WriteString("</td><td>" + html.EscapeString(r.Domain) + `: <span class="key">` + html.EscapeString(r.Rule+" "+r.Limit) + "</span>" + shadow +
			`</td><td class="least soft">` + html.EscapeString(r.At) + "</td></tr>\n")
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}

// listIdle returns limits as lists of a hundred, so that browsers only lay out the visible lists.
// It does not use a template, which takes ten times longer, because there may be ten thousand
// limits.
func listIdle(all []pageRule) template.HTML {
	var b strings.Builder
	for chunk := range slices.Chunk(all, 100) {
		b.WriteString("<ul class=\"idle\">\n")
		for i := range chunk {
			r := &chunk[i]
			b.WriteString("<li>" + html.EscapeString(r.Domain) + ": <code>" + html.EscapeString(r.Rule+" "+r.Limit) +
				"</code> <span class=\"soft\">" + html.EscapeString(r.At) + "</span></li>\n")
		}
		b.WriteString("</ul>\n")
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}
