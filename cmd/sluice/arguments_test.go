package main

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestKnownArguments(t *testing.T) {
	parser, err := newParser(new(cli), ratelimitProgram, console{})
	must.OK(t, err)
	for _, tt := range []struct{ args, known, ignored string }{
		{"", "", ""},
		{"--quotaRateLimitServiceAddr=a:1", "", "--quotaRateLimitServiceAddr=a:1"},
		{"--quotaRateLimitServiceAddr a:1", "", "--quotaRateLimitServiceAddr a:1"},
		{"-v --config rules -- x", "--config rules", "-v -- x"},
		{"-c rules -x=1", "-c rules", "-x=1"},
		{"serve --shadow-mode 1 --config=a", "serve --shadow-mode --config=a", "1"},
		{"--shadow-mode=false --nosuch --config", "--shadow-mode=false --config", "--nosuch"},
		{"--no-json --no-config x", "--no-json", "--no-config x"},
		{"check --nosuch", "check --nosuch", ""},
		{"--help", "--help", ""},
		{"nosuch check", "", "nosuch check"},
	} {
		known, ignored := splitArguments(parser.Model, strings.Fields(tt.args))
		if got := strings.Join(known, " "); got != tt.known {
			t.Errorf("known arguments of %q = %q, want %q", tt.args, got, tt.known)
		}
		if got := strings.Join(ignored, " "); got != tt.ignored {
			t.Errorf("ignored arguments of %q = %q, want %q", tt.args, got, tt.ignored)
		}
	}
}
