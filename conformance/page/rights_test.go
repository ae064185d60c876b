package page

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// TestPageWithoutRightToWrite verifies that a reader gets a page without reset buttons, and sees why
// a reset is rejected if the right is withdrawn while the page is open.
func TestPageWithoutRightToWrite(t *testing.T) {
	const token = "changed-0123456789abcdef0123456789"
	tokens := filepath.Join(t.TempDir(), "tokens")
	grant := func(right string) {
		if err := os.WriteFile(tokens, []byte(right+" bob "+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	grant("write")
	ctx, s, origin, _ := startWithTokens(t, tokens, token)
	do(ctx, t, chromedp.Navigate(origin+"/"))
	hit(t, s, "user", "alice", 5)
	awaitVisible(ctx, t, "#keys .reset")
	grant("read")
	await(ctx, t, "token file loaded")
	do(ctx, t, chromedp.Click("#keys .reset"))
	await(ctx, t, "Cannot reset #")
	await(ctx, t, "403: token bob from 127.0.0.1:")
	await(ctx, t, "may only read: this requires the right to write")
	if get(ctx, t, chromedp.Evaluate[bool]("document.querySelector('#yes').checkVisibility()")) {
		t.Error("the dialog has a button for a reset that is not allowed")
	}
	do(ctx, t, chromedp.Navigate(origin+"/"))
	await(ctx, t, "user 3/year")
	if n := get(ctx, t, chromedp.Evaluate[int]("document.querySelectorAll('#keys tbody tr').length")); n != 1 {
		t.Errorf("a reader's page has %d keys, want 1", n)
	}
	if n := get(ctx, t, chromedp.Evaluate[int]("document.querySelectorAll('.reset').length")); n != 0 {
		t.Errorf("a reader's page has %d reset buttons", n)
	}
	if get(ctx, t, chromedp.Evaluate[bool]("document.querySelector('#unmask').checkVisibility()")) {
		t.Error("a reader's page has a button that shows values")
	}
}

// TestPageAsksForAToken verifies that a browser on another machine, which uses the listener's name,
// gets the page with a token as the password, and that the page updates and resets with it.
func TestPageAsksForAToken(t *testing.T) {
	const token = "writing-0123456789abcdef0123456789"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("write bob "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, s, origin, browserErrors := startWithTokens(t, tokens, token)
	do(ctx, t, chromedp.Navigate(origin+"/"))
	await(ctx, t, "no key is denied")
	hit(t, s, "user", "alice", 5)
	await(ctx, t, "user 3/year")
	do(ctx, t, chromedp.Click("#keys .reset"))
	await(ctx, t, "1 counter(s), ")
	do(ctx, t, chromedp.Click("#yes"), chromedp.WaitNotVisible("#confirmation"))
	await(ctx, t, "by=token bob from 127.0.0.1:")
	reportErrors(t, browserErrors)
	if strings.Contains(s.Log(), token) {
		t.Error("the token is in the log")
	}
}

// startWithTokens starts sluice with TLS and a token file, and a browser on another machine, which
// uses the listener's name and a token as the password.
func startWithTokens(t *testing.T, tokens, token string) (ctx context.Context, s *sluice.Sluice, origin string, browserErrors func() []string) {
	t.Helper()
	authority, err := testcert.New("authority")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(testcert.Leaf{Names: []string{"sluice.test"}})
	if err != nil {
		t.Fatal(err)
	}
	files, err := testcert.Mount(t.TempDir(), pair, authority.PEM)
	if err != nil {
		t.Fatal(err)
	}
	s = start(t, rules, "--debug-tls-cert", files.Cert, "--debug-tls-key", files.Key, "--debug-token-file", tokens)
	_, port, err := net.SplitHostPort(s.Addr("debug"))
	if err != nil {
		t.Fatal(err)
	}
	origin = "https://sluice.test:" + port
	ctx, browserErrors = chromium(t, origin, token, chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("host-resolver-rules", "MAP sluice.test 127.0.0.1"))
	return ctx, s, origin, browserErrors
}
