// Package page tests the debug page in a real Chromium.
package page

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

const patience = suite.Patience

// evil is a value with which a client tries to run a script in an operator's browser.
const evil = `<img src=x onerror=alert(1)>`

const rules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: user, value: ci-robot, rate_limit: {unit: second, requests_per_unit: 100000}}
  - {key: path, value: /search, rate_limit: {unit: year, requests_per_unit: 20}}
`

// chromium returns a browser that is closed with the test, and a function that returns the errors
// in it: messages on the console, dialogs, requests to other origins. The browser answers
// password prompts with password.
func chromium(t *testing.T, origin, password string, more ...chromedp.ExecAllocatorOption) (ctx context.Context, browserErrors func() []string) {
	t.Helper()
	path := browser()
	if path == "" && os.Getenv("CI") != "" {
		t.Fatal("Chromium not found: `make chromium` could not fetch it, it is not installed, and CHROMIUM_BIN is not set; this is an error because CI is set")
	}
	if path == "" {
		suite.Skip(t, "the page in a browser: run `make chromium`, install your distribution's Chromium, or set CHROMIUM_BIN")
	}
	var mu sync.Mutex
	var found []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, fmt.Sprintf(format, args...))
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.WSURLReadTimeout(patience))
	options = append(options, more...)
	all, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(all, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, origin+"/") && u != "data:," {
				say("a request to %s", u)
			}
		case *fetch.EventRequestPaused:
			go answer(ctx, command(fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID}))
		case *fetch.EventAuthRequired:
			go answer(ctx, command(fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: &fetch.AuthChallengeResponse{
				Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: "anybody", Password: password,
			}}))
		case *log.EventEntryAdded:
			say("the console: %s", e.Entry.Text)
		case *cdpruntime.EventExceptionThrown:
			say("an exception: %s", e.ExceptionDetails.Text)
		case *cdpruntime.EventConsoleAPICalled:
			say("the console: %s", e.Type)
		case *page.EventJavascriptDialogOpening:
			say("a dialog: %s", e.Message)
		}
	}))
	t.Cleanup(end)
	if password != "" {
		wantsPassword := true
		do(ctx, t, command(fetch.Enable, fetch.EnableParams{HandleAuthRequests: &wantsPassword}))
	}
	do(ctx, t, command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(cdpruntime.Enable, cdp.Empty{}), command(page.Enable, page.EnableParams{}))
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return found
	}
}

// browser returns the path of Chromium: CHROMIUM_BIN, or that of `make chromium` or of the
// distribution, or "".
func browser() string {
	if path := os.Getenv("CHROMIUM_BIN"); path != "" {
		return path
	}
	if made, _ := filepath.Glob(filepath.Join(root, ".build", "chromium-*", "chromium")); len(made) > 0 {
		return made[len(made)-1]
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func start(t *testing.T, rules string, args ...string) *sluice.Sluice {
	t.Helper()
	return startIn(t, t.TempDir(), rules, args...)
}

// startIn starts sluice with rules in the file rules.yaml of a directory.
func startIn(t *testing.T, dir, rules string, args ...string) *sluice.Sluice {
	t.Helper()
	binary, err := sluice.Build(t.Context(), root, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sluice.Start(t.Context(), sluice.Options{Binary: binary, Args: append(args, "--config", "rules.yaml"), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// hit sends n requests with one descriptor to the domain shop.
func hit(t *testing.T, s *sluice.Sluice, key, value string, times int) {
	t.Helper()
	sendRequests(t, s, "shop", key, value, times)
}

// sendRequests sends n requests with one descriptor.
func sendRequests(t *testing.T, s *sluice.Sluice, domain, key, value string, times int) {
	t.Helper()
	for range times {
		body := fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":%q,"value":%q}]}]}`, domain, key, value)
		resp, err := http.Post("http://"+s.Addr("http")+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// command adapts a command of the browser's protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// answer replies to the browser. If that fails, the test fails later.
func answer(ctx context.Context, action chromedp.Action[chromedp.Void]) {
	_ = chromedp.Do(ctx, action)
}

// do runs actions in the browser.
func do(ctx context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

func get[T any](ctx context.Context, t *testing.T, action chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// await waits until the page contains the given text.
func await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	awaitTrue(ctx, t, fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// awaitTrue waits until an expression is true.
func awaitTrue(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience))); err != nil {
		body, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		t.Fatalf("wait for %s: %v; the page is\n%s", expression, err, body)
	}
}

// awaitVisible waits until an element is visible.
func awaitVisible(ctx context.Context, t *testing.T, selector string) {
	t.Helper()
	awaitTrue(ctx, t, fmt.Sprintf("document.querySelector(%q)?.checkVisibility() === true", selector))
}

// TestPage verifies that a new key appears on an open page without a reload, that its details have
// the rule's line and a chart, that values are shown as text, and that a reset asks for
// confirmation.
func TestPage(t *testing.T) {
	s := start(t, rules, "--top-keys", "clear")
	addr := s.Addr("debug")
	ctx, browserErrors := chromium(t, "http://"+addr, "")
	do(ctx, t, chromedp.Navigate("http://"+addr+"/"))
	await(ctx, t, "no key is denied")
	hit(t, s, "user", "alice", 40)
	began := time.Now()
	await(ctx, t, "user=alice")
	t.Logf("a newly denied key is on the page after %v", time.Since(began))
	hit(t, s, "user", evil, 6)
	hit(t, s, "usr", "x", 3)
	hit(t, s, "user", "ci-robot", 50)
	await(ctx, t, "user="+evil)
	await(ctx, t, `did you mean "user"?`)
	if images := get(ctx, t, chromedp.Evaluate[int]("document.images.length")); images != 0 {
		t.Errorf("the page has %d images, want values to be shown as text", images)
	}

	do(ctx, t, chromedp.Click("#keys .name button"))
	awaitVisible(ctx, t, "#details svg")
	awaitTrue(ctx, t, "/rules.yaml:4:29[^]*hits of all clients/.test(document.querySelector('#facts').innerText)")
	await(ctx, t, "40 of 3 used, resets at ")
	do(ctx, t, chromedp.Click("#details .close"), chromedp.WaitNotVisible("#details"))

	do(ctx, t, chromedp.Click("#keys .reset"))
	await(ctx, t, "Reset user=alice (shop: user 3/year)? 1 counter(s), ")
	do(ctx, t, chromedp.Click("#yes"), chromedp.WaitNotVisible("#confirmation"))
	await(ctx, t, "counters reset")
	reportErrors(t, browserErrors)
}

// reportErrors fails the test if the browser reported errors.
func reportErrors(t *testing.T, browserErrors func() []string) {
	t.Helper()
	if found := browserErrors(); len(found) > 0 {
		t.Errorf("the browser reported:\n%s", strings.Join(found, "\n"))
	}
}

// TestPageOfManyKeys verifies that a page with many denied keys requests the first hundred, and the
// others for a filter, an order or details.
func TestPageOfManyKeys(t *testing.T) {
	const domains, keys = 6, 20
	var text strings.Builder
	for d := range domains {
		fmt.Fprintf(&text, "---\ndomain: domain-%d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 0 } }]\n", d)
	}
	s := start(t, text.String(), "--top-keys", "clear")
	ctx, browserErrors := chromium(t, "http://"+s.Addr("debug"), "")
	do(ctx, t, chromedp.Navigate("http://"+s.Addr("debug")+"/"))
	for d := range domains {
		for k := range keys {
			sendRequests(t, s, fmt.Sprint("domain-", d), "user", fmt.Sprintf("%d-client-%02d", d, k), 1+min(1, k)) // the first ones the least
		}
	}
	await(ctx, t, "the first 100 of 120: use the filter to see others")
	awaitTrue(ctx, t, "tables.keys.items.length === 100")
	do(ctx, t, chromedp.SendKeys("#filter", "5-client-00"))
	await(ctx, t, "1 of 120 match the filter")
	do(ctx, t, chromedp.Click("#keys .name button"))
	awaitVisible(ctx, t, "#details")
	do(ctx, t, chromedp.Click("#details .close"), chromedp.WaitNotVisible("#details"),
		chromedp.Evaluate[chromedp.Void]("byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))"))
	awaitTrue(ctx, t, "tables.keys.items.length === 100")
	do(ctx, t, chromedp.Click("#keys th:nth-child(5) button")) // sorts by key
	await(ctx, t, "user=0-client-00")
	reportErrors(t, browserErrors)
}
