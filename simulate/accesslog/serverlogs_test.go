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
		"combined after a host", `shop.example:443 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/2.0" 200 512 "-" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | / | shop.example | curl/8 | 200`,
	},
	{
		"addresses first", `192.0.2.7, 198.51.100.9 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/2.0" 200 512 "-" "curl/8" 0.002 "x"
`, `
09:00:00 | 192.0.2.7, 198.51.100.9 | GET | / | - | curl/8 | 200`,
	},
	{
		"nginx", `10.0.0.1 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8" "192.0.2.7, 192.0.2.8" 0.120
10.0.0.1 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8" "-" 0.001
`, `
09:00:00 | 10.0.0.1 | GET | / | - | curl/8 | 200
09:00:00 | 10.0.0.1 | GET | / | - | curl/8 | 200`,
	},
	{
		"ingress-nginx", `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a HTTP/2.0" 200 5 "-" "curl/8" 38 0.004 [shop-web-80] [] 10.42.0.9:8080 5 0.004 200 6e2bafc91a
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
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
		"Caddy", `{"level":"info","ts":1795251600.5,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"1","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/a?b","headers":{"User-Agent":["curl/8"],"Accept":["a","b"]},"tls":{"resumed":false}},"bytes_read":0,"duration":0.1,"size":5,"status":200,"resp_headers":{"Server":["Caddy"]}}
{"level":"info","ts":1795251601,"logger":"tls","msg":"cleaning storage unit"}
{"level":"info","ts":1795251602,"request":{"client_ip":"192.0.2.8","method":"GET","host":"shop.example","uri":"/","headers":{}},"status":429}
`, `
09:00:00.5 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200
09:00:02 | 192.0.2.8 | GET | / | shop.example | - | 429`,
	},
	{
		"Traefik", `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a HTTP/2.0" 200 5 "-" "curl/8" 17 "shop@docker" "http://10.0.0.9:80" 3ms
192.0.2.7 - al [21/Nov/2026:09:00:01 +0000] "GET /a HTTP/2.0" 404 19 "-" "-" 18 "-" "-" 0ms
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200
09:00:01 | 192.0.2.7 | GET | /a | - | - | 404`,
	},
	{
		"Traefik's JSON", `{"ClientAddr":"192.0.2.7:5000","ClientHost":"192.0.2.7","DownstreamStatus":200,"Duration":2000000000,"RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/a?b","ServiceURL":{"Scheme":"http","Host":"10.0.0.9"},"StartUTC":"2026-11-21T09:00:00.25Z","request_User-Agent":"curl/8","level":"info","msg":"","time":"2026-11-21T09:00:02Z"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"HAProxy", `192.0.2.7:33317 [21/Nov/2026:09:00:00.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example|curl} {} "GET /a?b HTTP/1.1"
192.0.2.7:33318 [21/Nov/2026:09:00:01.000] http-in http-in/<NOSRV> -1/-1/-1/-1/5 -1 0 - - CR-- 1/1/0/0/0 0/0 "<BADREQ>"
192.0.2.7:33319 [21/Nov/2026:09:00:02.000] http-in static/srv1 10/0/30/69/+109 200 +2750 - - ---- 1/1/1/1/0 0/0 "GET http://shop.example/a HTTP/1.1"
`, `
09:00:00.655 | 192.0.2.7:33317 | GET | /a?b | - | - | 200
09:00:01 | 192.0.2.7:33318 | - | - | - | - | -1
09:00:02 | 192.0.2.7:33319 | GET | /a | shop.example | - | 200`,
	},
	{
		"HAProxy in syslog", `Nov 21 09:00:00 lb haproxy[14389]: Proxy http-in started.
Nov 21 09:00:00 lb haproxy[14389]: 192.0.2.7:33317 [21/Nov/2026:09:00:00.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET /a HTTP/1.1"
`, `
09:00:00.655 | 192.0.2.7:33317 | GET | /a | - | - | 200`,
	},
	{
		"application load balancer", `https 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://shop.example:443/a?b HTTP/1.1" "curl/8" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/shop/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "shop.example" "arn:aws:acm:eu-west-1:123456789012:certificate/1" 1 2026-11-21T09:00:00.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1
h2 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.8:2817 - -1 -1 -1 429 - 0 57 "GET https://shop.example:443/?x HTTP/2.0" "-" - - - "Root=1-5" "-" "-" 1 2026-11-21T09:00:01.000000Z "waf" "-" "-" "-" "-" "-" "-"
http 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.9:2817 - -1 -1 -1 400 - 0 57 "- http://shop.example:80- " "-" - - - "-" "-" "-" - 2026-11-21T09:00:02.000000Z "-" "-" "-" "-" "-" "-" "-" TID_2
`, `
09:00:00.364 | 192.0.2.7:2817 | GET | /a?b | shop.example:443 | curl/8 | 200
09:00:01 | 192.0.2.8:2817 | GET | /?x | shop.example:443 | - | 429
09:00:02 | 192.0.2.9:2817 | - | - | - | - | 400`,
	},
	{
		"CloudFront", "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query\n" +
			"2026-11-21\t09:00:00\tFRA2\t182\t192.0.2.7\tGET\tx.cloudfront.net\t/a\t200\t-\tcurl/8%20x\tb=c\n" +
			"2026-11-21\t09:00:01\tFRA2\t182\t192.0.2.8\tGET\tx.cloudfront.net\t/\t429\t-\t-\t-\n", `
09:00:00 | 192.0.2.7 | GET | /a | x.cloudfront.net | curl/8%20x | 200
09:00:01 | 192.0.2.8 | GET | / | x.cloudfront.net | - | 429`,
	},
	{
		"CloudFront without its header", "2026-11-21\t09:00:00\tFRA2\t182\t192.0.2.7\tGET\tx.cloudfront.net\t/a\t200\t-\tcurl/8\t-\ta b\tHit\tid==\tshop.example\thttps\t23\t0.001\t-\tTLSv1.3\tTLS\tHit\tHTTP/2.0\t-\t-\t11040\n", `
09:00:00 | 192.0.2.7 | GET | /a | shop.example | curl/8 | 200`,
	},
	{
		"IIS", "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status\n" +
			"2026-11-21 09:00:00 10.0.0.1 GET /a - 443 - 192.0.2.7 curl/8 200\n#Software: again\n", `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
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
	{
		"Caddy in compose", `caddy-1  | {"level":"info","ts":1795251600,"request":{"client_ip":"192.0.2.7","method":"GET","host":"shop.example","uri":"/","headers":{}},"status":200}
`, `
09:00:00 | 192.0.2.7 | GET | / | shop.example | - | 200`,
	},
	{
		"docker's JSON with text", `{"log":"192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] \"GET /a HTTP/1.1\" 200 512 \"-\" \"curl/8\"\n","stream":"stdout","time":"2026-11-21T09:00:05.1Z"}
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
	},
	{
		"docker's JSON with JSON", `{"log":"{\"ts\":1795251600.5,\"request\":{\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"uri\":\"/a\",\"headers\":{\"User-Agent\":[\"curl/8\"]}},\"status\":429}\n","stream":"stdout","time":"2026-11-21T09:00:05.1Z"}
{"log":"{\"ts\":1795251601.5,\"request\":{\"client_ip\":\"192.0.2.8\",\"method\":\"GET\",\"uri\":\"/b\",\"headers\":{\"User-Agent\":[\"curl/8\"]}},\"status\":429}\n","stream":"stdout","time":"2026-11-21T09:00:05.1Z"}
`, `
09:00:00.5 | 192.0.2.7 | GET | /a | - | curl/8 | 429
09:00:01.5 | 192.0.2.8 | GET | /b | - | curl/8 | 429`,
	},
	{
		"a collector's JSON with the field names of the line", `{"message":"192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] \"GET /r?u=http://x/y HTTP/1.1\" 200 512 \"-\" \"-\"","agent":"fluent","host":"node"}
`, `
09:00:00 | 192.0.2.7 | GET | /r?u=http://x/y | - | - | 200`,
	},
	{
		"a collector's JSON", `{"message":"192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] \"GET /a HTTP/1.1\" 200 512","@timestamp":"2026-11-21T09:00:09Z","host":{"name":"node"},"agent":{"type":"filebeat"}}
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | - | 200`,
	},
	{
		"Google Cloud's load balancer", `{"httpRequest":{"requestMethod":"GET","requestUrl":"https://shop.example/a?b","requestSize":"90","status":429,"responseSize":"157","userAgent":"curl/8","remoteIp":"192.0.2.7","latency":"0.003s"},"insertId":"x","jsonPayload":{"statusDetails":"response_sent_by_backend"},"resource":{"type":"http_load_balancer"},"severity":"WARNING","timestamp":"2026-11-21T09:00:00.25Z","receiveTimestamp":"2026-11-21T09:00:01Z"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 429`,
	},
	{
		"Azure Front Door", `{"time":"2026-11-21T09:00:00.25Z","resourceId":"/SUBSCRIPTIONS/X","category":"FrontDoorAccessLog","operationName":"Microsoft.Cdn/Profiles/AccessLog/Write","properties":{"trackingReference":"0","httpMethod":"GET","httpVersion":"2.0.0.0","requestUri":"https://shop.example:443/a?b","hostName":"shop.example","clientIp":"192.0.2.7","clientPort":"1","userAgent":"curl/8","httpStatusCode":"200","timeTaken":"0.1"}}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"Cloudflare's Logpush", `{"ClientIP":"192.0.2.7","ClientRequestHost":"shop.example","ClientRequestMethod":"GET","ClientRequestURI":"/a?b","ClientRequestUserAgent":"curl/8","EdgeEndTimestamp":1795251601000000000,"EdgeResponseBytes":1,"EdgeResponseStatus":200,"EdgeStartTimestamp":1795251600250000000,"RayID":"x"}
{"ClientIP":"192.0.2.8","ClientRequestHost":"shop.example","ClientRequestMethod":"GET","ClientRequestURI":"/","ClientRequestUserAgent":"","EdgeEndTimestamp":"2026-11-21T09:00:02Z","EdgeResponseStatus":429,"EdgeStartTimestamp":"2026-11-21T09:00:01Z","RayID":"y"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200
09:00:01 | 192.0.2.8 | GET | / | shop.example |  | 429`,
	},
	{
		"Fastly", `{"timestamp":"2026-11-21T09:00:00+0000","client_ip":"192.0.2.7","geo_country":"x","host":"shop.example","url":"/a?b","request_method":"GET","request_protocol":"HTTP/2","request_referer":"","request_user_agent":"curl/8","response_state":"PASS","response_status":200}
`, `
09:00:00 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"Kong", `{"started_at":1795251600250,"client_ip":"192.0.2.7","latencies":{"request":5,"kong":1,"proxy":4},"request":{"method":"GET","uri":"/a?b","url":"https://shop.example:8443/a?b","size":75,"headers":{"host":"shop.example","user-agent":"curl/8"}},"response":{"status":429,"size":434},"upstream_uri":"/a"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 429`,
	},
	{
		"APISIX's file-logger", `{"client_ip":"192.0.2.7","start_time":1795251600250,"latency":3,"request":{"method":"GET","uri":"/a?b","url":"http://shop.example:9080/a?b","headers":{"host":"shop.example","user-agent":"curl/8"}},"response":{"status":200,"headers":{}},"upstream":"10.0.0.1:80"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"APISIX", `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] shop.example "GET /a?b HTTP/1.1" 200 12 0.003 "-" "curl/8" 10.0.0.1:80 200 0.002 "http://shop.example/a"
`, `
09:00:00 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"pino", `{"level":30,"time":1795251600250,"pid":1,"hostname":"web-0","req":{"id":1,"method":"GET","url":"/a?b","headers":{"host":"shop.example","user-agent":"curl/8"},"remoteAddress":"192.0.2.7","remotePort":1},"res":{"statusCode":429,"headers":{}},"responseTime":5,"msg":"request completed"}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 429`,
	},
	{
		"Squid", `1795251600.250    921 192.0.2.7 TCP_MISS/200 507 GET http://shop.example/a?b - HIER_DIRECT/10.0.0.1 text/html
1795251601.250 600921 192.0.2.8 TCP_TUNNEL/200 5071 CONNECT shop.example:443 al HIER_DIRECT/10.0.0.1 -
1795251602.250      0 192.0.2.9 NONE_NONE/400 3500 - error:invalid-request - HIER_NONE/- text/html
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | - | 200
09:00:01.25 | 192.0.2.8 | CONNECT | shop.example:443 | - | - | 200
09:00:02.25 | 192.0.2.9 | - | error:invalid-request | - | - | 400`,
	},
	{
		"Caddy's console", "2026/11/21 09:00:00.250\tinfo\thttp.log.access.log0\thandled request\t" + `{"request":{"remote_ip":"192.0.2.7","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/a?b","headers":{"User-Agent":["curl/8"]}},"bytes_read":0,"duration":0.005,"size":12,"status":200}` + "\n" +
			"2026/11/21 09:00:01.250\t\x1b[31merror\x1b[0m\thttp.log.access\thandled request\t" + `{"request":{"client_ip":"192.0.2.8","method":"GET","host":"shop.example","uri":"/","headers":{}},"status":429}` + "\n", `
09:00:00.25 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200
09:00:01.25 | 192.0.2.8 | GET | / | shop.example | - | 429`,
	},
	{
		"logcli's jsonl", `{"labels":{"app":"web"},"line":"192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] \"GET /a HTTP/1.1\" 200 512 \"-\" \"curl/8\"","timestamp":"2026-11-21T09:00:05Z"}
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
	},
	{
		"LTSV", "time:[21/Nov/2026:09:00:00 +0000]\thost:192.0.2.7\tforwardedfor:-\treq:GET /a?b HTTP/1.1\tstatus:200\tsize:5\treferer:-\tua:curl/8 (a:b)\tvhost:shop.example\n" +
			"time:2026-11-21T09:00:01+00:00\tstatus:429\thost:192.0.2.8\treq:GET / HTTP/1.1\tvhost:shop.example\tua:-\n", `
09:00:00 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 (a:b) | 200
09:00:01 | 192.0.2.8 | GET | / | shop.example | - | 429`,
	},
	{
		"OVH", `192.0.2.7 shop.example - [21/Nov/2026:09:00:00 +0000] "GET /a?b HTTP/1.1" 200 512 "-" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | /a?b | shop.example | curl/8 | 200`,
	},
	{
		"S3 in its old format", `79a59df900b949e5 shop-bucket [21/Nov/2026:09:00:00 +0000] 192.0.2.7 arn:aws:iam::1:user/al 3E57427F33A59F07 WEBSITE.GET.OBJECT a "GET /a HTTP/1.1" 200 - 113 113 7 6 "-" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
	},
	{
		"S3", `79a59df900b949e5 shop-bucket [21/Nov/2026:09:00:00 +0000] 192.0.2.7 arn:aws:iam::1:user/al 3E57427F33A59F07 REST.GET.OBJECT a/b%20c "GET /a/b%20c?x HTTP/1.1" 200 - 113 113 7 6 "-" "S3Console/0.4" - hostid= SigV4 ECDHE AuthHeader shop-bucket.s3.amazonaws.com TLSv1.2 - -
79a59df900b949e5 shop-bucket [21/Nov/2026:09:00:01 +0000] - svc:s3.amazonaws.com 3E57427F33A59F08 S3.EXPIRE.OBJECT a - - - - 9 - - - - - hostid= - - - - - - -
79a59df900b949e5 shop-bucket [21/Nov/2026:09:00:02 +0000] 192.0.2.8 - 3E57427F33A59F09 REST.PUT.OBJECT a "PUT /a HTTP/1.1" 503 SlowDown 113 - 7 - "-" "curl/8" - hostid= SigV4 ECDHE AuthHeader shop-bucket.s3.amazonaws.com TLSv1.2 - -
`, `
09:00:00 | 192.0.2.7 | GET | /a/b%20c?x | - | S3Console/0.4 | 200
09:00:02 | 192.0.2.8 | PUT | /a | - | curl/8 | 503`,
	},
	{
		"IIS's own format", `#Software: Microsoft Internet Information Services 6.0
#Date: 2026-11-21 09:00:00
192.0.2.7, -, 11/21/26, 9:00:00, W3SVC2, SERVER, 10.0.0.1, 4502, 163, 3223, 200, 0, GET, /a, -,
192.0.2.8, al, 11/21/2026, 9:00:01, W3SVC2, SERVER, 10.0.0.1, 4502, 163, 3223, 429, 0, GET, /b, x=y,
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | - | 200
09:00:01 | 192.0.2.8 | GET | /b | - | - | 429`,
	},
	{
		"classic load balancer with connections", `2026-11-21T09:00:00.25Z shop 192.0.2.7:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://shop.example:80/a?b HTTP/1.1" "curl/8" - -
2026-11-21T09:00:01.25Z shop 192.0.2.8:2817 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 "- - - " "-" - -
`, `
09:00:00.25 | 192.0.2.7:2817 | GET | /a?b | shop.example:80 | curl/8 | 200`,
	},
	{
		"classic load balancer without a user agent", `2026-11-21T09:00:00.25Z shop 192.0.2.7:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://shop.example:80/a?b HTTP/1.1"
2026-11-21T09:00:01.25Z shop 192.0.2.8:2817 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 "- - - "
`, `
09:00:00.25 | 192.0.2.7:2817 | GET | /a?b | shop.example:80 | - | 200`,
	},
	{
		"Gandi", `shop.example 192.0.2.7 - al [21/Nov/2026:09:00:00 +0000] (0 s) "GET /a HTTP/1.1" 200 368 "-" "curl/8"
shop.example 2001:db8::1 - - [21/Nov/2026:10:00:01 +0100] (1500000 us) "GET / HTTP/1.1" 429 - "https://shop.example/" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | /a | shop.example | curl/8 | 200
09:00:01 | 2001:db8::1 | GET | / | shop.example | curl/8 | 429`,
	},
	{
		"Zoraxy", `[2026-11-21 09:00:00.123456] [internal] [system:info] Zoraxy started
[2026-11-21 09:00:00.250000] [router:host-http] [origin:shop.example] [client: 192.0.2.7] [useragent: Mozilla/5.0 [en] (X11; Linux) [FBAN/a;]] GET /a?b=c 200
[2026-11-21 09:00:01.000000] [router:host-http] [origin:] [client: 192.0.2.8] [useragent: ] POST / 429
[2026-11-21 09:00:02.000000] [router:blacklist] [origin:shop.example] [client: 192.0.2.9] [useragent: curl/8] GET / 403
`, `
09:00:00.25 | 192.0.2.7 | GET | /a?b=c | shop.example | Mozilla/5.0 [en] (X11; Linux) [FBAN/a;] | 200
09:00:01 | 192.0.2.8 | POST | / | - | - | 429
09:00:02 | 192.0.2.9 | GET | / | shop.example | curl/8 | 403`,
	},
	{
		"Zoraxy with Go's log", `2026/11/21 09:00:00 [2026-11-21 09:00:00.123456] [internal] [system:info] Zoraxy started
2026/11/21 09:00:00 [2026-11-21 09:00:00.250000] [router:host-http] [origin:shop.example] [client: 192.0.2.7] [useragent: curl/8] GET /a 200
`, `
09:00:00.25 | 192.0.2.7 | GET | /a | shop.example | curl/8 | 200`,
	},
	{
		"NPMplus", `[21/Nov/2026:10:00:00 +0100] shop.example 192.0.2.7 0.227 "GET /a HTTP/2.0" 200 125 440 - Mozilla/5.0 (Windows NT 10.0; Win64; x64)
[21/Nov/2026:09:00:01 +0000] _ 192.0.2.8 0.811 "\x16\x03\x01\"o" 400 0 0 - -
`, `
09:00:00 | 192.0.2.7 | GET | /a | shop.example | - | 200
09:00:01 | 192.0.2.8 | - | - | _ | - | 400`,
	},
	{
		"old Zoraxy without user agents", `[2026-11-21 09:00:00.250000] [router:host-http] [origin:shop.example] [client: 192.0.2.7] GET /a 200
`, `
09:00:00.25 | 192.0.2.7 | GET | /a | shop.example | - | 200`,
	},
	{
		"BunnyCDN", `HIT|200|1795251600250|412|390|192.0.2.7|-|https://shop.example/a?b|WA|curl/8 (a b)|322b688b|DE
MISS|429|1795251601000|412|390|192.0.2.8|https://shop.example/|https://shop.example/|WA|-|322b688c|DE
`, `
09:00:00.25 | 192.0.2.7 | - | /a?b | shop.example | - | 200
09:00:01 | 192.0.2.8 | - | / | shop.example | - | 429`,
	},
	{
		"Zeek", "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\thttp\n#open\t2026-11-21-09-00-00\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tmethod\thost\turi\tuser_agent\tstatus_code\n#types\ttime\tstring\taddr\tport\tstring\tstring\tstring\tstring\tcount\n" +
			"1795251600.250000\tCh1\t192.0.2.7\t5000\tGET\tshop.example\t/a b\tcurl/8\t200\n" +
			"1795251602.000000\tCh3\t192.0.2.9\t5001\tGET\t(empty)\t/a\\x09b\\\\c\\xc3\\xbc\\xzz\tcurl/8\t200\n" +
			"1795251601.000000\tCh2\t192.0.2.8\t5001\tGET\t-\t/\t-\t-\n#close\t2026-11-21-10-00-00\n", `
09:00:00.25 | 192.0.2.7 | GET | /a b | shop.example | curl/8 | 200
09:00:02 | 192.0.2.9 | GET | /a` + "\tb\\cü\\xzz" + ` | - | curl/8 | 200
09:00:01 | 192.0.2.8 | GET | / | - | - | -`,
	},
	{
		"Zeek's JSON", `{"ts":1795251600.25,"uid":"Ch1","id.orig_h":"192.0.2.7","id.orig_p":5000,"id.resp_h":"10.0.0.1","trans_depth":1,"method":"GET","host":"shop.example","uri":"/a","version":"1.1","user_agent":"curl/8","status_code":200,"tags":[]}
{"ts":"2026-11-21T09:00:01.000000Z","uid":"Ch2","id.orig_h":"192.0.2.8","id.resp_h":"10.0.0.1","method":"GET","uri":"/","status_code":429}
`, `
09:00:00.25 | 192.0.2.7 | GET | /a | shop.example | curl/8 | 200
09:00:01 | 192.0.2.8 | GET | / | - | - | 429`,
	},
}
