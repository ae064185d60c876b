package page

import (
	"strings"
	"testing"
	"time"

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

	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().selectAllChildren(document.querySelector('#keys td.name button'))"))
	ask("bob")
	await(ctx, t, "paused while text is selected")
	if selected := get(ctx, t, chromedp.Evaluate[string]("getSelection().toString()")); selected != "user=alice" {
		t.Errorf("the selection is %q, want user=alice", selected)
	}
	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().removeAllRanges()"))
	await(ctx, t, "user=bob")

	do(ctx, t, chromedp.Evaluate[chromedp.Void]("Array.from(document.querySelectorAll('#keys .name button')).find((b) => b.innerText === 'user=bob').focus()"))
	sendRequests(t, s, long, "user", "bob", 40)
	awaitTrue(ctx, t, "document.querySelector('#keys .name button').innerText === 'user=bob'")
	if focused := get(ctx, t, chromedp.Evaluate[string]("document.activeElement.innerText")); focused != "user=bob" {
		t.Errorf("after its row has moved the focus is on %q, want user=bob", focused)
	}

	at := get(ctx, t, chromedp.Evaluate[[]float64]("var button = document.querySelector('#keys .reset'); button.scrollIntoView(); var box = button.getBoundingClientRect(); [box.x + 5, box.y + 5]"))
	mouse := func(kind input.DispatchMouseEventType) chromedp.Action[chromedp.Void] {
		return command(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0], Y: at[1], Button: input.MouseButtonLeft, ClickCount: 1})
	}
	do(ctx, t, mouse(input.DispatchMouseEventTypeMousePressed))
	requests := "performance.getEntriesByType('resource').length"
	before := get(ctx, t, chromedp.Evaluate[int](requests))
	get(ctx, t, chromedp.PollFunction[bool]("(before) => "+requests+" > before + 1", chromedp.WithPollingArgs(before), chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	do(ctx, t, mouse(input.DispatchMouseEventTypeMouseReleased))
	await(ctx, t, "1 counter(s), ")
	reportErrors(t, browserErrors)
}

// TestPageReportsStaleFigures verifies that the page says since when there is no answer.
func TestPageReportsStaleFigures(t *testing.T) {
	s := start(t, rules)
	addr := s.Addr("debug")
	ctx, _ := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.Navigate("http://"+addr+"/"))
	await(ctx, t, "calls/s")
	if get(ctx, t, chromedp.Evaluate[bool]("document.querySelector('#stale').checkVisibility()")) {
		t.Error("the page reports stale figures while sluice answers")
	}
	s.Kill()
	awaitVisible(ctx, t, "#stale")
	await(ctx, t, "No answer from sluice (")
	await(ctx, t, "the figures are from ")
	awaitTrue(ctx, t, `/The last answer was \d+ seconds ago\./.test(document.body.innerText)`)
}
