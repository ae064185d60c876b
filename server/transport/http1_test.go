package transport

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

func TestSpeaksHTTP1(t *testing.T) {
	for first, want := range map[string]string{
		"":                            "undecided",
		"P":                           "undecided",
		"PRI":                         "undecided",
		"PRI ":                        "no",
		http2.ClientPreface:           "no",
		http2.ClientPreface + "more":  "no",
		"PO":                          "undecided",
		"POST":                        "undecided",
		"POST ":                       "undecided",
		"POST /":                      "yes",
		"OPTIONS * HTTP/1.1":          "yes",
		"GET http://sluice/ HTTP/1.1": "yes",
		"INVALID CONNECTION PREFACE":  "no",
		"GET / HTTP/1.1\r\n\r\n":      "yes",
		"PROPFIND /":                  "yes",
		"get / HTTP/1.1\r\n\r\n":      "no",
		" GET / HTTP/1.1":             "no",
		strings.Repeat("A", 20):       "undecided",
		strings.Repeat("A", 20) + " ": "undecided",
		strings.Repeat("A", 21):       "no",
		"\x16\x03\x01\x02\x00\x01":    "no",
		"\x00\x00\x00\x04":            "no",
	} {
		got := "no"
		switch yes, undecided := SpeaksHTTP1([]byte(first)); {
		case yes:
			got = "yes"
		case undecided:
			got = "undecided"
		}
		if got != want {
			t.Errorf("%q is taken for HTTP/1: %s, want %s", first, got, want)
		}
	}
}
