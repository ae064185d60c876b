package page

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// TestPageAsksForAToken verifies that a browser on another machine, which uses the listener's name,
// gets the page with a token as the password, and that the page updates and resets with it.
func TestPageAsksForAToken(t *testing.T) {
	const token = "writing-0123456789abcdef0123456789"
	dir := t.TempDir()
	authority, err := testcert.New("authority")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(testcert.Leaf{Names: []string{"sluice.test"}})
	if err != nil {
		t.Fatal(err)
	}
	files, err := testcert.Mount(dir, pair, authority.PEM)
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("write bob "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, rules, "--debug-tls-cert", files.Cert, "--debug-tls-key", files.Key, "--debug-token-file", tokens)
	_, port, err := net.SplitHostPort(s.Addr("debug"))
	if err != nil {
		t.Fatal(err)
	}
	origin := "https://sluice.test:" + port
	ctx, browserErrors := chromium(t, origin, token, chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("host-resolver-rules", "MAP sluice.test 127.0.0.1"))
	do(ctx, t, chromedp.Navigate(origin+"/"))
	await(ctx, t, "no key is denied")
	hit(t, s, "user", "alice", 5)
	await(ctx, t, "user 3/year")
	do(ctx, t, chromedp.WaitVisible("#keys .reset"), chromedp.Click("#keys .reset"))
	await(ctx, t, "1 counter(s), ")
	do(ctx, t, chromedp.Click("#yes"), chromedp.WaitNotVisible("#confirmation"))
	await(ctx, t, "by=token bob from 127.0.0.1:")
	reportErrors(t, browserErrors)
	if strings.Contains(s.Log(), token) {
		t.Error("the token is in the log")
	}
}
