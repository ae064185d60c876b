package redis

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]Server{
		"redis://h":               {Network: "tcp", Address: "h:6379"},
		"redis://u:p@h:1/3":       {Network: "tcp", Address: "h:1", Auth: Auth{User: "u", Password: "p"}, Database: 3},
		"redis://:p@[::1]:1":      {Network: "tcp", Address: "[::1]:1", Auth: Auth{Password: "p"}},
		"redis://:a%40b%2C@h":     {Network: "tcp", Address: "h:6379", Auth: Auth{Password: "a@b,"}},
		"rediss://h:1":            {Network: "tcp", Address: "h:1", TLS: &TLS{}},
		"unix:///run/valkey.sock": {Network: "unix", Address: "/run/valkey.sock"},
		"redis+sentinel://a,b:1,[::1]/main": {
			Sentinels: []string{"a:26379", "b:1", "[::1]:26379"}, Master: "main",
		},
		"rediss+sentinel://u:p@a,b/main/2": {
			Sentinels: []string{"a:26379", "b:26379"}, Master: "main", Database: 2, Auth: Auth{User: "u", Password: "p"}, TLS: &TLS{},
		},
		"redis+cluster://:p@a,b:1":  {Nodes: []string{"a:6379", "b:1"}, Auth: Auth{Password: "p"}},
		"rediss+cluster://[::1]:1/": {Nodes: []string{"[::1]:1"}, TLS: &TLS{}},
	} {
		if got, err := ParseURL(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseURL(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"redis://u:geheim@h:x":           "host \"h:x\" must be a name or an address, and a port from 1 to 65535",
		"redis://u:geheim@h:":            "host \"h:\" must be",
		"redis://u:geheim@h:0":           "parse redis://u:xxxxx@h:0: port \"0\" of \"h:0\" must be a number from 1 to 65535",
		"redis://u:geheim@h:99999/1":     "port \"99999\" of \"h:99999\" must be",
		"redis://h:65536":                "parse redis://h:65536: port \"65536\"",
		"redis+cluster://a:1,b:70000":    "port \"70000\" of \"b:70000\"",
		"redis+sentinel://a:1,b:0/main":  "port \"0\" of \"b:0\"",
		"redis://u:ge/geheim@h":          "in a user or a password / is %2F",
		"redis://u:gehe#geheim@h":        "# is %23",
		"redis://u:123#geheim@h/0":       "# is %23",
		"redis://:?geheim@h":             "? is %3F",
		"redis://u:geheim@/1":            "no host",
		"redis://u:geheim@h/db":          "must be a number",
		"redis://u:geheim@h?x=1":         "parameters",
		"redis://u:geheim@a,b":           "parse redis://u:xxxxx@a,b: several hosts; use redis+sentinel for Sentinels",
		"memcache://u:geheim@h":          "unknown scheme \"memcache\"; must be redis://",
		"redis+proxy://h":                "unknown scheme \"redis+proxy\"",
		"h:6379":                         "no scheme",
		"":                               "no scheme",
		"unix://host/path":               "needs a path",
		"unix:///":                       "needs a path",
		"redis+sentinel://u:geheim@a,b":  "parse redis+sentinel://u:xxxxx@a,b: no name of the primary; must be redis+sentinel://host:port,host:port/master",
		"redis+sentinel://a,,b/main":     "no host",
		"redis+sentinel://a,b:x/main":    "host \"b:x\" must be",
		"redis+sentinel://a/main/db":     "database \"db\" must be a number",
		"redis+cluster://u:geheim@a,b/3": "clusters have one database",
		"rediss+cluster://":              "no host",
	} {
		if _, err := ParseURL(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("ParseURL(%q): %v, want %q and no password", text, err, want)
		}
	}
}
