package accesslog

// serverLogs contains lines of servers and the expected values.
var serverLogs = []struct{ name, log, want string }{
	{
		"common", `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 512
192.0.2.8 - al [21/Nov/2026:10:00:01 +0100] "POST / HTTP/1.0" 429 -
2001:db8::1 - - [21/Nov/2026:09:00:02 +0000] "\x16\x03\x01\x02" 400 157
`, `
09:00:00 | 192.0.2.7 | GET | /a?b=c | - | - | 200
09:00:01 | 192.0.2.8 | POST | / | - | - | 429
09:00:02 | 2001:db8::1 | - | - | - | - | 400`,
	},
	{
		"combined", `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.7 - al b [21/Nov/2026:09:00:01 +0000] "GET /\" 500 0 \"x\" \"y HTTP/1.1" 200 512 "http://x.example/\" \"z" "a \"quoted\" agent\\"
192.0.2.7 - - [21/Nov/2026:09:00:02 +0000] "GET /\x22 HTTP/1.1" 200 512 "-" "-"
192.0.2.9 - - [21/Nov/2026:09:00:03 +0000] "-" 408 0 "-" "-"
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200
09:00:01 | 192.0.2.7 | GET | /\" 500 0 \"x\" \"y | - | a \"quoted\" agent\\ | 200
09:00:02 | 192.0.2.7 | GET | /\x22 | - | - | 200
09:00:03 | 192.0.2.9 | - | - | - | - | 408`,
	},
	{
		"nginx's JSON", `{"time_local":"21/Nov/2026:09:00:00 +0000","remote_addr":"192.0.2.7","request":"GET /a?b HTTP/1.1","status": "200","http_host":"shop.example","http_user_agent":"a \"b\"","uri":"/index.html","request_time":"0.001"}
{"time_local":"21/Nov/2026:09:00:01 +0000","remote_addr":"192.0.2.7","request":"","status": "400","http_host":"","http_user_agent":"","uri":"","request_time":"0.001"}
{"time_local":"21/Nov/2026:09:00:02 +0000","remote_addr":"192.0.2.7","request":"GET /\xC3\xBC HTTP/1.1","status": "200","http_host":"shop.example","http_user_agent":"a \x22b\x22"}
`, `
09:00:00 | 192.0.2.7 | GET | /a?b | shop.example | a "b" | 200
09:00:01 | 192.0.2.7 | - | - |  |  | 400
09:00:02 | 192.0.2.7 | GET | /ü | shop.example | a "b" | 200`,
	},
	{
		"nginx's JSON with other times", `{"msec":"1795251600.250","remote_addr":"192.0.2.7","request_method":"GET","request_uri":"/a","host":"shop.example","status":200,"http_user_agent":"curl/8"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a | shop.example | curl/8 | 200`,
	},
	{
		"JSON of several logs", `{"time_iso8601":"2026-11-21T08:00:00+00:00","time_local":"21/Nov/2026:09:00:00 +0000","remote_addr":"192.0.2.7","status":200}
{"time_local":"21/Nov/2026:09:00:01 +0000","remote_addr":"192.0.2.8","status":200}
{"time_local":"21/Nov/2026:09:00:02 +0000","remote_addr":"192.0.2.9","status":200}
`, `
09:00:00 | 192.0.2.7 | - | - | - | - | 200
09:00:01 | 192.0.2.8 | - | - | - | - | 200
09:00:02 | 192.0.2.9 | - | - | - | - | 200`,
	},
	{
		"Envoy in a container runtime's log", `2026-11-21T09:00:00.1Z stderr F [2026-11-21 09:00:00.000][1][info][main] starting
2026-11-21T09:00:00.2Z stdout F [2026-11-21T09:00:00.150Z] "GET /a HTTP/1.1" 200 - 0 28 1 0 "192.0.2.7" "curl/8" "id" "shop.example" "10.0.0.1:80"
`, `
09:00:00.15 | - | GET | /a | shop.example | curl/8 | 200`,
	},
	{
		"nginx in kubectl", `[pod/web-0/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
	},
}
