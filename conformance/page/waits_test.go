package page

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// TestPageWaits verifies that the page, which is rebuilt each second, preserves the selection, a
// pressed button, and the scroll position of a table.
func TestPageWaits(t *testing.T) {
	long := strings.Repeat("shop", 20)
	s := start(t, strings.Replace(rules, "domain: shop", "domain: "+long, 1), "--top-keys", "clear")
	addr := s.Addr("debug")
	ctx, browserErrors := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.EmulateViewport(375, 800), chromedp.Navigate("http://"+addr+"/"))
	ask := func(user string) { sendRequests(t, s, long, "user", user, 4) }
	ask("alice")
	await(ctx, t, "user=alice")

	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().selectAllChildren(document.querySelector('#keys td.key'))"))
	ask("bob")
	await(ctx, t, "paused while text is selected")
	if selected := get(ctx, t, chromedp.Evaluate[string]("getSelection().toString()")); selected != "user=alice" {
		t.Errorf("the selection is %q, want user=alice", selected)
	}
	do(ctx, t, chromedp.Evaluate[chromedp.Void]("getSelection().removeAllRanges()"))
	await(ctx, t, "user=bob")

	scrolled := get(ctx, t, chromedp.Evaluate[int]("const wide = document.querySelector('#keys').parentElement; wide.scrollTo(9999, 0); wide.scrollLeft"))
	ask("carol")
	await(ctx, t, "user=carol")
	if is := get(ctx, t, chromedp.Evaluate[int]("document.querySelector('#keys').parentElement.scrollLeft")); is != scrolled || scrolled == 0 {
		t.Errorf("the table is scrolled to %d, want %d, and more than 0", is, scrolled)
	}

	at := get(ctx, t, chromedp.Evaluate[[]float64]("var button = document.querySelector('#keys button'), box = button.getBoundingClientRect(); [box.x + 5, box.y + 5]"))
	mouse := func(kind input.DispatchMouseEventType) chromedp.Action[chromedp.Void] {
		return command(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0], Y: at[1], Button: input.MouseButtonLeft, ClickCount: 1})
	}
	do(ctx, t, mouse(input.DispatchMouseEventTypeMousePressed))
	requests := "performance.getEntriesByType('resource').length"
	before := get(ctx, t, chromedp.Evaluate[int](requests))
	get(ctx, t, chromedp.PollFunction[bool]("(before) => "+requests+" > before + 1", chromedp.WithPollingArgs(before), chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	do(ctx, t, mouse(input.DispatchMouseEventTypeMouseReleased))
	await(ctx, t, "1 counter(s), ")
	if found := browserErrors(); len(found) > 0 {
		t.Errorf("the browser reported:\n%s", strings.Join(found, "\n"))
	}
}
