package access

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const (
	tokenA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	tokenB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.-_~+/="
	tokenC = "cccccccccccccccccccccccccccccccccccc"
)

func putTokens(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	putTokens(t, path, "# rights\n\nread  grafana "+tokenA+"\n\twrite\talice@example.com  "+tokenB+"\r\nread alice@example.com "+tokenC+"\n")
	tokens, err := ReadTokens(TokenOptions{File: path})
	must.OK(t, err)
	for _, tt := range []struct {
		token, name string
		right       Right
	}{
		{tokenA, "grafana", Read},
		{tokenB, "alice@example.com", Write},
		{tokenC, "alice@example.com", Read},
		{tokenA + "a", "", 0},
		{tokenA[1:], "", 0},
		{"", "", 0},
		{"grafana", "", 0},
	} {
		if name, right := tokens.Find(tt.token); name != tt.name || right != tt.right {
			t.Errorf("Find(%q) = %q, %v, want %q, %v", tt.token, name, right, tt.name, tt.right)
		}
	}
}

// TestBadTokenFiles checks that errors name file and line, and contain nothing from the file.
func TestBadTokenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for text, want := range map[string]string{
		"":                         " contains no token; to revoke all tokens",
		"# none\n":                 " contains no token",
		"read a " + tokenA:         ": the last line has no newline and may be truncated",
		"\nread " + tokenA + "\n":  ":2: the line has 2 words: must be RIGHT NAME TOKEN",
		tokenA + ",alice,1\n":      ":1: the line has 1 words",
		tokenA + " read a\n":       ":1: the first word must be a right (read or write)",
		"reed a " + tokenA + "\n":  ":1: the first word must be a right",
		"read a: " + tokenA + "\n": ":1: the name (second word) must consist of at most 64 letters",
		"read " + strings.Repeat("n", 65) + " " + tokenA + "\n": ":1: the name (second word)",
		"read " + tokenA + " alice\n":                           ":1: the token (third word) has 5 characters: must be 32 to 512; generate one with openssl rand -hex 32",
		"read a " + strings.Repeat("t", 513) + "\n":             ":1: the token (third word) has 513 characters",
		"read a " + tokenA + "!\n":                              ":1: the token (third word) must consist of letters, digits",
		"read a " + tokenA + "\n\nwrite b " + tokenA + "\n":     ":3: duplicate token; first used on line 1",
		strings.Repeat("#", maxTokenFileBytes) + "\n":           " is larger than 65536 bytes",
	} {
		putTokens(t, path, text)
		_, err := ReadTokens(TokenOptions{File: path})
		if err == nil || !strings.HasPrefix(err.Error(), path+want) || strings.Contains(err.Error(), "aaaa") || strings.Contains(err.Error(), "nnnn") {
			t.Errorf("%q: %v, want %s%s without any part of the file", text, err, path, want)
		}
	}
	must.OK(t, os.Chmod(path, 0o602))
	if _, err := ReadTokens(TokenOptions{File: path}); err == nil || !strings.Contains(err.Error(), "file is world-writable (mode 0602), so any local user could grant themselves rights; run chmod o-w") {
		t.Errorf("a world-writable file: %v", err)
	}
	if _, err := ReadTokens(TokenOptions{File: path + "x"}); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("no file: %v", err)
	}
}

// TestTokensFollowTheirFile changes the file step by step. The clock is fake.
func TestTokensFollowTheirFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		good := "read a " + tokenA + "\nwrite b " + tokenB + "\n"
		putTokens(t, path, good)
		m, err := telemetry.New(telemetry.Options{})
		must.OK(t, err)
		core, logs := observer.New(zap.DebugLevel)
		tokens, err := ReadTokens(TokenOptions{File: path, Metrics: &m.TokenFile, Logger: m.Events.Watch(zap.New(core))})
		must.OK(t, err)
		var group sync.WaitGroup
		group.Go(func() { tokens.Run(t.Context()) })
		t.Cleanup(group.Wait)
		check := func(when string, ok, errors float64, conditions int, want ...Right) {
			t.Helper()
			for i, token := range []string{tokenA, tokenB, tokenC} {
				if _, right := tokens.Find(token); right != want[i] {
					t.Errorf("%s: token %d has the right %v, want %v", when, i, right, want[i])
				}
			}
			if got := testutil.ToFloat64(m.TokenFile.LastOK); got != ok {
				t.Errorf("%s: the last reload is %v, want %v", when, got, ok)
			}
			if got := testutil.ToFloat64(m.TokenFile.ReloadErrors); got != errors {
				t.Errorf("%s: %v errors, want %v", when, got, errors)
			}
			if got := m.Conditions.Active(time.Now()); len(got) != conditions || conditions > 0 && got[0].Code != telemetry.TokenFileRejected {
				t.Errorf("%s: the conditions are %+v, want %d", when, got, conditions)
			}
		}
		check("at first", 1, 0, 0, Read, Write, 0)
		putTokens(t, path, "read a "+tokenA+"\nwrite c "+tokenC+"\n")
		time.Sleep(1500 * time.Millisecond)
		check("after one reading", 1, 0, 0, Read, Write, 0)
		time.Sleep(time.Second)
		check("after two", 1, 0, 0, Read, 0, Write)
		for i := range len(good) - 1 { // truncated anywhere except at the end of a line
			if good[i] != '\n' {
				putTokens(t, path, good[:i+1])
				time.Sleep(3 * time.Second)
				check("cut short at "+good[:i+1], 0, testutil.ToFloat64(m.TokenFile.ReloadErrors), 1, Read, 0, Write)
			}
		}
		errors := testutil.ToFloat64(m.TokenFile.ReloadErrors)
		must.OK(t, os.Remove(path))
		time.Sleep(10 * time.Second)
		check("removed", 0, errors+1, 1, Read, 0, Write)
		putTokens(t, path, "read a "+tokenA+"\nwrite c "+tokenC+"\n")
		time.Sleep(3 * time.Second)
		check("back", 1, errors+1, 0, Read, 0, Write)
		for _, e := range logs.All() {
			for _, token := range []string{tokenA, tokenB, tokenC} {
				if strings.Contains(e.Message, token[:8]) || strings.Contains(fmt.Sprint(e.ContextMap()), token[:8]) {
					t.Errorf("a token is in the log: %v", e)
				}
			}
		}
	})
}

func TestParseRights(t *testing.T) {
	for _, bad := range []string{"", "a", "a=", "=read", "a=rad", "a=read,write", "a=*", "a=b=read"} {
		if _, err := ParseRights([]string{bad}); err == nil || !strings.Contains(err.Error(), "must be NAME=") {
			t.Errorf("ParseRights(%q) = %v, want an error", bad, err)
		}
	}
}
