package page

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var (
	update      = flag.Bool("update", false, "draw docs/page.png")
	screenshots = flag.String("screenshots", "", "draw a picture of each display into this directory")
)

// axe returns the script of axe-core, which finds barriers for people with disabilities.
func axe(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(root, ".build", "axe-core-*", "axe.min.js"))
	if len(found) == 0 {
		t.Fatal("axe-core not found: run `make axe`, which installs it into .build/")
	}
	script, err := os.ReadFile(found[len(found)-1])
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// findCut returns the elements whose content is wider or higher than they are, and those with text
// smaller than 14 pixels.
const findCut = `Array.from(document.querySelectorAll("body, body *"), (e) => {
	if (!(e instanceof HTMLElement) || !e.checkVisibility() || e.clientWidth === 0) return "";
	const problems = [];
	if (e.scrollWidth > e.clientWidth) problems.push(e.scrollWidth + " pixels in " + e.clientWidth);
	if (parseFloat(getComputedStyle(e).fontSize) < 14) problems.push("text of " + getComputedStyle(e).fontSize);
	return problems.length ? e.outerHTML.slice(0, 200) + ": " + problems.join(", ") : "";
}).filter(Boolean)`

// eachDisplay calls check for three widths, each in light and dark mode.
func eachDisplay(ctx context.Context, t *testing.T, check func(display string)) {
	t.Helper()
	for _, width := range []int64{1280, 768, 375} {
		for _, scheme := range []string{"light", "dark"} {
			do(ctx, t,
				chromedp.EmulateViewport(width, 1000),
				command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
			)
			back := get(ctx, t, chromedp.Evaluate[string]("getComputedStyle(document.body).backgroundColor"))
			if dark := back != "rgb(255, 255, 255)"; dark != (scheme == "dark") {
				t.Errorf("%s: the background is %s", scheme, back)
			}
			check(fmt.Sprintf("%d-%s", width, scheme))
		}
	}
}

// checkLayout verifies that axe-core, whose script the page must have, finds nothing, that nothing is
// cut off, and that no text is smaller than 14 pixels.
func checkLayout(ctx context.Context, t *testing.T, display string) {
	t.Helper()
	var violations []struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML string `json:"html"`
		} `json:"nodes"`
	}
	text := get(ctx, t, chromedp.Evaluate[string]("axe.run().then((r) => JSON.stringify(r.violations))", chromedp.EvalAwaitPromise))
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Errorf("%s: axe-core reports %s: %s, %d times, such as %s", display, v.ID, v.Help, len(v.Nodes), v.Nodes[0].HTML)
	}
	for _, e := range get(ctx, t, chromedp.Evaluate[[]string](findCut)) {
		t.Errorf("%s: %s", display, e)
	}
}

// takeScreenshot writes an image of the window to a file.
func takeScreenshot(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, get(ctx, t, chromedp.CaptureScreenshot()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPageLayout checks the layout with and without open details. With -update it draws
// docs/page.png, and with -screenshots DIR a picture of each display.
func TestPageLayout(t *testing.T) {
	script := axe(t)
	dir := t.TempDir()
	s := startIn(t, dir, strings.Replace(rules, "requests_per_unit: 20}", "requests_per_unit: 30}", 1), "--top-keys", "clear")
	addr := s.Addr("debug")
	ctx, browserErrors := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.Navigate("http://"+addr+"/"))
	await(ctx, t, "no key is denied")
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "shop: path=/search 30/year -> 20/year")
	hit(t, s, "path", "/search", 30)
	hit(t, s, "user", "alice", 40)
	hit(t, s, "user", strings.Repeat("bob", 50), 6)
	hit(t, s, "usr", "x", 3)
	hit(t, s, "user", "ci-robot", 50)
	await(ctx, t, "user=bobbob")
	await(ctx, t, `did you mean "user"?`)
	do(ctx, t, chromedp.Evaluate[chromedp.Void](script))
	eachDisplay(ctx, t, func(display string) {
		check := func(display string) {
			checkLayout(ctx, t, display)
			if *screenshots != "" {
				takeScreenshot(ctx, t, filepath.Join(*screenshots, display+".png"))
			}
		}
		check(display)
		const keysFirst = "document.querySelector('#keys').offsetTop < document.querySelector('#events').offsetTop"
		if phone := strings.HasPrefix(display, "375"); get(ctx, t, chromedp.Evaluate[bool](keysFirst)) != phone {
			t.Errorf("%s: denied keys are above events: %v, want %v", display, !phone, phone)
		}
		do(ctx, t, chromedp.Click("#keys .name button"))
		awaitVisible(ctx, t, "#details svg")
		check(display + "-details")
		do(ctx, t, chromedp.Click("#details .close"), chromedp.WaitNotVisible("#details"))
	})
	if *update {
		do(ctx, t, chromedp.EmulateViewport(1280, 1000), command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}))
		hit(t, s, "path", "/search", 20)
		hit(t, s, "user", "alice", 60)
		awaitTrue(ctx, t, "/^[1-9]/.test(document.querySelector('#keys tbody .number').innerText)")
		takeScreenshot(ctx, t, filepath.Join(root, "docs", "page.png"))
	}
	reportErrors(t, browserErrors)
}
