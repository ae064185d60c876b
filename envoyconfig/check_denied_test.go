package envoyconfig

import (
	"strings"
	"testing"
)

// TestCheckDenials covers what changes a denied_response on its way to the client.
func TestCheckDenials(t *testing.T) {
	const cors = "{ name: cors, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }"
	const limit = "- { key: user, rate_limit: { unit: hour, requests_per_unit: 1 }"
	inManager := func(text string) [2]string {
		return [2]string{"http_filters:\n", text + "\n          http_filters:\n"}
	}
	mapper := func(fields string) [2]string {
		return inManager("local_reply_config: { mappers: [{ " + fields + " }] }")
	}
	const status = "filter: { status_code_filter: { comparison: { op: EQ, value: { default_value: 429, runtime_key: k } } } }, "
	for name, tt := range map[string]struct {
		change [2]string
		want   string
	}{
		"nothing":                    {},
		"enforced by runtime":        {[2]string{"domain: shop", "domain: shop\n                filter_enforced: { default_value: { numerator: 100 }, runtime_key: k }"}, "filter_enforced may be below 100 %"},
		"enforced by half":           {[2]string{"domain: shop", "domain: shop\n                filter_enforced: { default_value: { numerator: 50 } }"}, "filter_enforced may be below 100 %"},
		"enforced":                   {[2]string{"domain: shop", "domain: shop\n                filter_enforced: { default_value: { numerator: 100 } }"}, ""},
		"a format":                   {inManager("local_reply_config: { body_format: { text_format: denied } }"), "replaces the body"},
		"a format with the body":     {inManager("local_reply_config: { body_format: { text_format: 'a %LOCAL_REPLY_BODY%' } }"), ""},
		"a mapper":                   {mapper(status + "body: { inline_string: denied }"), "replaces the body"},
		"a mapper's format":          {mapper(status + "body_format_override: { json_format: { code: '%RESPONSE_CODE%' } }"), "replaces the body"},
		"a mapper's format with it":  {mapper(status + "body_format_override: { json_format: { text: '%LOCAL_REPLY_BODY%' } }"), ""},
		"a mapper of another status": {mapper(strings.Replace(status, "429", "503", 1) + "body: { inline_string: down }"), ""},
		"a mapper of the status":     {mapper(status + "status_code: 430"), ""},
		"CORS before":                {[2]string{"http_filters:\n", "http_filters:\n            - " + cors + "\n"}, ""},
		"CORS after":                 {[2]string{"            - name: router\n", "            - " + cors + "\n            - name: router\n"}, "the CORS filter is after"},
		"a route's retry-after":      {[2]string{"route: { cluster", "response_headers_to_add: [{ header: { key: Retry-After, value: '5' } }], route: { cluster"}, "second retry-after"},
		"a host's retry-after":       {[2]string{"domains: [", "response_headers_to_add: [{ header: { key: retry-after, value: '5' } }]\n                domains: ["}, "second retry-after"},
		"another header of a host":   {[2]string{"domains: [", "response_headers_to_add: [{ header: { key: x-a, value: '5' } }]\n                domains: ["}, ""},
		"acknowledged retry-after":   {[2]string{"domains: [", "response_headers_to_add: [{ header: { key: retry-after, value: '5' } }] # sluice:allow denial\n                domains: ["}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(completeListener, "cluster_header: x-backend", "cluster: backend", 1)
			changed := text
			if tt.change[0] != "" {
				changed = strings.Replace(text, tt.change[0], tt.change[1], 1)
				if changed == text {
					t.Fatalf("no %q in\n%s", tt.change[0], text)
				}
			}
			c, err := Read([]File{{"envoy.yaml", []byte(changed)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, changed)
			}
			denials := func(denied string) (all []string) {
				for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors:\n"+limit+denied+" }\n")) {
					if f.Code == Denial {
						all = append(all, f.String())
					}
				}
				return all
			}
			if got := denials(", denied_response: none"); got != nil {
				t.Errorf("without a response: %q", got)
			}
			for _, preset := range []string{"", "text"} { // in the rules, and as a flag of serve
				denied := ", denied_response: text"
				if c.DeniedResponse = preset; preset != "" {
					denied = ""
				}
				got := denials(denied)
				if tt.want == "" && got != nil || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
					t.Errorf("found %q, want %q in\n%s", got, tt.want, changed)
				}
			}
		})
	}
}

// TestCheckLimitHeaders covers headers with limits that both programs add.
func TestCheckLimitHeaders(t *testing.T) {
	for _, tt := range []struct {
		option string
		adds   bool
		want   bool
	}{
		{"DRAFT_VERSION_03", true, true},
		{"1", true, true},
		{"DRAFT_VERSION_03", false, false},
		{"'OFF'", true, false},
	} {
		text := strings.Replace(completeListener, "domain: shop", "domain: shop\n                enable_x_ratelimit_headers: "+tt.option, 1)
		c, err := Read([]File{{"envoy.yaml", []byte(strings.Replace(text, "cluster_header: x-backend", "cluster: backend", 1))}})
		if err != nil {
			t.Fatal(err)
		}
		c.AddsLimitHeaders = tt.adds
		var found []string
		for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors:\n- { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }\n")) {
			if f.Code == Denial {
				found = append(found, f.Message)
			}
		}
		if tt.want != (len(found) == 1 && strings.Contains(found[0], "clients get the limits twice")) || !tt.want && found != nil {
			t.Errorf("%s, sluice adds headers %v: found %q, want a warning %v", tt.option, tt.adds, found, tt.want)
		}
	}
}
