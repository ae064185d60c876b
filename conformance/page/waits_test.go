package page

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// TestPageWaits verifies that the page, which changes each second, preserves the selection, a pressed
// button, and the focus.
func TestPageWaits(t *testing.T) {
	long := strings.Repeat("shop", 20)
	s := start(t, strings.Replace(rules, "domain: shop", "domain: "+long, 1), "--top-keys", "clear")
	addr := s.Addr("debug")
	ctx, browserErrors := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.EmulateViewport(375, 800), chromedp.Navigate("http://"+addr+"/"))
	ask := func(user string) { sendRequests(t, s, long, "user", user, 4) }
	ask("alice")
	await(ctx, t, "user=alice")

	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().selectAllChildren(document.querySelector('#keys td:nth-child(3)'))"))
	selected := get(ctx, t, chromedp.Evaluate[string]("getSelection().toString()"))
	ask("alice")
	ask("bob")
	await(ctx, t, "paused while text is selected")
	awaitRequests(ctx, t)
	if got := get(ctx, t, chromedp.Evaluate[string]("getSelection().toString()")); got != selected || got == "" {
		t.Errorf("the selection is %q, want %q", got, selected)
	}
	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().removeAllRanges()"))
	await(ctx, t, "user=bob")

	do(ctx, t, chromedp.Evaluate[chromedp.Void]("Array.from(document.querySelectorAll('#keys .name button')).find((b) => b.innerText === 'user=bob').focus()"))
	sendRequests(t, s, long, "user", "bob", 40)
	awaitTrue(ctx, t, "document.querySelector('#keys .name button').innerText === 'user=bob'")
	if focused := get(ctx, t, chromedp.Evaluate[string]("document.activeElement.innerText")); focused != "user=bob" {
		t.Errorf("after its row has moved the focus is on %q, want user=bob", focused)
	}

	do(ctx, t, chromedp.EmulateViewport(1280, 1500)) // without scrolling, which would keep a row in its place
	at := get(ctx, t, chromedp.Evaluate[[]float64]("var button = document.querySelector('#keys .reset'); var box = button.getBoundingClientRect(); [box.x + 5, box.y + 5]"))
	mouse := func(kind input.DispatchMouseEventType) chromedp.Action[chromedp.Void] {
		return command(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0], Y: at[1], Button: input.MouseButtonLeft, ClickCount: 1})
	}
	do(ctx, t, mouse(input.DispatchMouseEventTypeMousePressed))
	ask("dave") // without the pause, the pressed button would move below this key
	sendRequests(t, s, long, "user", "dave", 100)
	awaitRequests(ctx, t)
	do(ctx, t, mouse(input.DispatchMouseEventTypeMouseReleased))
	await(ctx, t, "1 counter(s), ")
	reportErrors(t, browserErrors)
}

// awaitRequests waits until the page has sent two more requests, the second of which it sends after it
// has handled the response to the first.
func awaitRequests(ctx context.Context, t *testing.T) {
	t.Helper()
	const requests = "performance.getEntriesByType('resource').length"
	before := get(ctx, t, chromedp.Evaluate[int](requests))
	awaitTrue(ctx, t, fmt.Sprintf("%s > %d + 1", requests, before))
}

// TestPageReportsStaleFigures verifies that the page says since when there is no answer.
func TestPageReportsStaleFigures(t *testing.T) {
	s := start(t, rules)
	addr := s.Addr("debug")
	ctx, _ := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.Navigate("http://"+addr+"/"))
	await(ctx, t, "calls/s")
	awaitTrue(ctx, t, "!document.querySelector('#stale').checkVisibility()")
	s.Kill()
	awaitVisible(ctx, t, "#stale")
	await(ctx, t, "No answer from sluice (")
	await(ctx, t, "the figures are from ")
	awaitTrue(ctx, t, `/The last answer was \d+ seconds ago\./.test(document.body.innerText)`)
}
