package accesslog

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logOf is a log with a text.
func logOf(text string) Log {
	return Log{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// valuesOf reads a log as simulate does: of each line the fields, "-" if one is absent and "?" if
// it is not certain.
func valuesOf(t *testing.T, text, format string, fields ...string) (lines []string, counts Counts) {
	t.Helper()
	f, err := Recognise([]Log{logOf(text)}, format)
	if err != nil {
		t.Fatal(err)
	}
	var slots []int
	for _, name := range fields {
		slots = append(slots, f.Want(name))
	}
	if err := f.Settle(); err != nil {
		t.Fatal(err)
	}
	r := f.NewReader(math.MaxInt64, func(l *Line) error {
		values := []string{time.Unix(0, l.At).UTC().Format("15:04:05.999")}
		for _, slot := range slots {
			switch {
			case l.IsUnsure(slot):
				values = append(values, "?")
			case l.Value(slot) == nil:
				values = append(values, "-")
			default:
				values = append(values, string(l.Value(slot)))
			}
		}
		lines = append(lines, strings.Join(values, " | "))
		return nil
	})
	err = f.Chunks(strings.NewReader(text), func(c Chunk) error {
		of := r.Read(c)
		counts.Add(&of, "log", counts.Rows)
		c.Free()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, counts
}

// serverLogs are lines as servers write them, and what is read of them.
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
		"combined behind a host", `shop.example:443 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/2.0" 200 512 "-" "curl/8"
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
09:00:01 | - | - | - | - | - | -
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
		"HAProxy behind syslog", `Nov 21 09:00:00 lb haproxy[14389]: Proxy http-in started.
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
		"Envoy behind a container runtime", `2026-11-21T09:00:00.1Z stderr F [2026-11-21 09:00:00.000][1][info][main] starting
2026-11-21T09:00:00.2Z stdout F [2026-11-21T09:00:00.150Z] "GET /a HTTP/1.1" 200 - 0 28 1 0 "192.0.2.7" "curl/8" "id" "shop.example" "10.0.0.1:80"
`, `
09:00:00.15 | - | GET | /a | shop.example | curl/8 | 200`,
	},
	{
		"nginx behind kubectl", `[pod/web-0/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8"
`, `
09:00:00 | 192.0.2.7 | GET | /a | - | curl/8 | 200`,
	},
	{
		"Caddy behind compose", `caddy-1  | {"level":"info","ts":1795251600,"request":{"client_ip":"192.0.2.7","method":"GET","host":"shop.example","uri":"/","headers":{}},"status":200}
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
		"a collector's JSON with names of the line's", `{"message":"192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] \"GET /r?u=http://x/y HTTP/1.1\" 200 512 \"-\" \"-\"","agent":"fluent","host":"node"}
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
		"S3, as it was once", `79a59df900b949e5 shop-bucket [21/Nov/2026:09:00:00 +0000] 192.0.2.7 arn:aws:iam::1:user/al 3E57427F33A59F07 WEBSITE.GET.OBJECT a "GET /a HTTP/1.1" 200 - 113 113 7 6 "-" "curl/8"
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
		"IIS's own format", `192.0.2.7, -, 11/21/26, 9:00:00, W3SVC2, SERVER, 10.0.0.1, 4502, 163, 3223, 200, 0, GET, /a, -,
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
}

// TestServers reads a log of each kind without being told which it is.
func TestServers(t *testing.T) {
	for _, test := range serverLogs {
		t.Run(test.name, func(t *testing.T) {
			got, _ := valuesOf(t, test.log, "auto", FieldRemote, ":method", ":path", ":authority", "user-agent", "status")
			if diff := cmp.Diff(strings.Split(strings.TrimPrefix(test.want, "\n"), "\n"), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTextFormatsAreFenced holds that no line of the formats of the table can be read in several
// ways, but for Envoy's, which escapes nothing.
func TestTextFormatsAreFenced(t *testing.T) {
	for _, test := range textFormats {
		f, err := newTextFormat(test.format)
		if err != nil {
			t.Fatalf("%s: %v", test.format, err)
		}
		if f.hasVariables && !f.fenced {
			t.Errorf("%s: a line can be read in several ways", test.format)
		}
	}
	for _, prefix := range prefixes {
		if f, err := newTextFormat(prefix); err != nil || !f.fenced {
			t.Errorf("%s: a line can be read in several ways, or %v", prefix, err)
		}
	}
}

// TestVariables reads lines by formats of nginx that one writes oneself.
func TestVariables(t *testing.T) {
	for _, test := range []struct{ format, log, fields, want string }{
		{`$time_iso8601 $remote_addr "$http_x_user" $request_uri`, `2026-11-21T09:00:00+00:00 192.0.2.7 "al" /a`, "x-user :path", "09:00:00 | al | /a"},
		{`$msec|${remote_addr}|$http_x_user`, `1795251600.5|192.0.2.7|a|b`, "x-user downstream_remote_address", "09:00:00.5 | a|b | 192.0.2.7"},
		// What a client sends without quotes can be read in several ways.
		{`$msec $http_x_user $http_x_plan`, `1795251600.5 al bo pro`, "x-user x-plan", "09:00:00.5 | ? | ?"},
		{`$msec $http_x_user $http_x_plan`, `1795251600.5 al pro`, "x-user x-plan", "09:00:00.5 | al | pro"},
		{`$msec $http_x_user $status`, `1795251600.5 al bo 200`, "x-user status", "09:00:00.5 | al bo | 200"},
		{`$msec $request $http_x_user`, `1795251600.5 GET /a HTTP/1.1 al`, ":path x-user", "09:00:00.5 | ? | ?"},
		{`$time_local "$request" "$http_user_agent"`, `21/Nov/2026:09:00:00 +0000 "GET / HTTP/1.1" "a \"b\" c"`, ":method user-agent", `09:00:00 | GET | a \"b\" c`},
	} {
		got, _ := valuesOf(t, test.log, test.format, strings.Fields(test.fields)...)
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s by %s is %q, want %q", test.log, test.format, got, test.want)
		}
	}
	if _, err := Recognise([]Log{logOf("x\n")}, "$msec$status"); err == nil || !strings.Contains(err.Error(), "nothing stands between msec and status") {
		t.Errorf("two variables without anything between them are %v", err)
	}
	if _, err := Recognise([]Log{logOf("x\n")}, "$status"); err == nil || !strings.Contains(err.Error(), "add $time_local, $time_iso8601 or $msec to --format") {
		t.Errorf("a format without a time is %v", err)
	}
}

// TestFewOfTheFirstLinesAreEnough has a program say other things when it starts, and a few lines have
// more behind them than the format that nearly all have.
func TestFewOfTheFirstLinesAreEnough(t *testing.T) {
	started := strings.Repeat("starting\n", 40)
	const line = `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8" "192.0.2.9"`
	for name, log := range map[string]string{
		"text": started + strings.Repeat(line+"\n", 5),
		"JSON": started + strings.Repeat(`{"time":"2026-11-21T09:00:00Z","x_forwarded_for":"192.0.2.9"}`+"\n", 5),
	} {
		got, counts := valuesOf(t, log, "auto", FieldXFF)
		if len(got) < 5 || got[0] != "09:00:00 | 192.0.2.9" || counts.Bad != counts.Read-len(got) {
			t.Errorf("%s: %d lines, the first %q, %d bad", name, len(got), got[:min(1, len(got))], counts.Bad)
		}
	}
	timed := strings.Repeat(line+" 0.1\n", 400) + strings.Repeat(line+" 0.1 more\n", 5)
	if f, err := Recognise([]Log{logOf(timed)}, "auto"); err != nil || !f.Has("request_time") {
		t.Errorf("the format that 400 of 405 lines have is not taken: %v", err)
	}
	if _, err := Recognise([]Log{logOf(strings.Repeat(started, 2) + line + "\n")}, "auto"); err == nil {
		t.Error("one line of 81 is enough")
	}
}

// TestColumnsOfLinesBehindOthers has what cannot be read be shown where it stands in the whole line.
func TestColumnsOfLinesBehindOthers(t *testing.T) {
	for _, test := range []struct{ good, bad, at string }{
		{
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			`[pod/web/nginx] 192.0.2.7 - - [31/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`, "31/Nov",
		},
		{
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" many 5`, "many",
		},
		{`web | {"time":"2026-11-21T09:00:00Z"}`, `web | {"time":"2026-11-21T09:00:00Z",}`, "}"},
		{`{"log":"{\"time\":1}"}`, `{"log":"x"}`, `"x"`},
	} {
		_, counts := valuesOf(t, test.good+"\n"+test.good+"\n"+test.bad+"\n", "auto")
		want := strings.LastIndex(test.bad, test.at) + 1
		if counts.Bad != 1 || counts.Worst[0].Column != want || counts.Worst[0].Line != 3 {
			t.Errorf("%s: %+v, want column %d", test.bad, counts, want)
		}
	}
}

// TestRecordsCountByThemselves has records of one line of OpenTelemetry's that cannot be read between
// others that can.
func TestRecordsCountByThemselves(t *testing.T) {
	attributes := func(at, path string) string {
		return `{"timeUnixNano":"` + at + `","attributes":[{"key":"path","value":{"stringValue":"` + path + `"}}]}`
	}
	body := func(text string) string { return `{"body":{"stringValue":"` + text + `"}}` }
	line := func(second string) string {
		return `192.0.2.7 - - [21/Nov/2026:09:00:0` + second + ` +0000] \"GET /` + second + ` HTTP/1.1\" 200 5`
	}
	for name, test := range map[string]struct {
		records []string
		want    []string
		columns []string // what stands where the bad records are said to be
	}{
		"attributes": {
			[]string{attributes("1795251600000000000", "/1"), attributes("soon", "/2"), attributes("0", "/3"), attributes("1795251603000000000", "/4")},
			[]string{"09:00:00 | /1", "09:00:03 | /4"},
			[]string{`"soon"`, `{"resourceLogs"`},
		},
		"text": {
			[]string{body(line("1")), body("starting"), body(line("3"))},
			[]string{"09:00:01 | /1", "09:00:03 | /3"},
			[]string{`{"stringValue":"starting"`},
		},
	} {
		log := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Join(test.records, ",") + "]}]}]}\n"
		got, counts := valuesOf(t, log, "auto", ":path")
		if diff := cmp.Diff(test.want, got); diff != "" || counts.Read != len(test.records) || counts.Bad != len(test.records)-len(test.want) {
			t.Errorf("%s: %+v; -want +got:\n%s", name, counts, diff)
		}
		for i, bad := range counts.Worst {
			if !strings.HasPrefix(log[bad.Column-1:], test.columns[i]) {
				t.Errorf("%s: %+v stands at %.20q, want %q", name, bad, log[bad.Column-1:], test.columns[i])
			}
		}
	}
}

// TestAPartIsWantedOnce has a part of a request line keep its slot.
func TestAPartIsWantedOnce(t *testing.T) {
	f, err := Recognise([]Log{logOf(serverLogs[0].log)}, "auto")
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := f.Want(":path"), f.Want(":path"), f.Want(":method"); a != b || a == c || a < 0 {
		t.Errorf("slots are %d, %d and %d", a, b, c)
	}
}

// TestNearestFormat holds what is said of a line that no format has.
func TestNearestFormat(t *testing.T) {
	for line, want := range map[string]string{
		`192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 five "-" "curl/8"`:                            `the nearest is the common log format, $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent, from which it differs at column 65: `,
		`[2026-11-21T09:00:00Z] "GET / HTTP/1.1" 200 - 0 28 1 0 "192.0.2.1"`:                                           "the nearest is Envoy's format, [%START_TIME%]",
		`192.0.2.1 - - [21/Nov/2026:10:00:00 +0100] shop.example "GET /a HTTP/1.1" 200 5 0.003 - "curl/8" 10.0.0.1:80`: "the nearest is APISIX's format, ",
		`1795251600.250    921 192.0.2.7 TCP_MISS 507 GET http://shop.example/a - HIER_DIRECT/10.0.0.1 text/html`:      "the nearest is Squid's format, ",
		"once upon a time": "no format that is known: give",
	} {
		_, err := Recognise([]Log{logOf(line + "\n")}, "auto")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), line[:10]) || !strings.HasPrefix(err.Error(), "log:1: ") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestHeaderOfALineThatIsReadWithoutOne has a header of CloudFront's be none of the bad lines, though
// the lines below it are known without it.
func TestHeaderOfALineThatIsReadWithoutOne(t *testing.T) {
	for _, test := range serverLogs {
		if test.name != "CloudFront without its header" {
			continue
		}
		header := "#Version: 1.0\n#Fields: date time a b c-ip" + strings.Repeat(" x", strings.Count(test.log, "\t")-4) + "\n"
		got, counts := valuesOf(t, header+test.log, "auto", FieldRemote)
		if len(got) != 1 || got[0] != "09:00:00 | 192.0.2.7" || counts.Bad != 0 {
			t.Errorf("%q, %+v", got, counts)
		}
		return
	}
	t.Error("there is no such log")
}

// TestNestedFields reads fields of objects within objects, whatever order they come in.
func TestNestedFields(t *testing.T) {
	log := `{"time":"2026-11-21T09:00:00Z","a":{"b":{"c":"1"},"d":["x"],"e.f":2},"g.h":"3","d":"4"}
{"a":{"d":["x","y"],"b":{"c":null}},"time":"2026-11-21T09:00:00Z","d":"5"}
{"time":"2026-11-21T09:00:00Z","a":"text","b":{"c":"no"},"d":{}}
{"time":"2026-11-21T09:00:00Z","a":{"b":{"c":"6","c":"7"},"b":"8"}}
`
	got, counts := valuesOf(t, log, "auto", "a.b.c", "a.d", "a.e.f", "g.h", "d", "a.b")
	want := []string{
		`09:00:00 | 1 | x | 2 | 3 | 4 | {"c":"1"}`,
		`09:00:00 | - | ["x","y"] | - | - | 5 | {"c":null}`,
		`09:00:00 | - | - | - | - | {} | -`,
		`09:00:00 | 7 | - | - | - | - | 8`,
	}
	if diff := cmp.Diff(want, got); diff != "" || counts.Bad > 0 {
		t.Errorf("%d bad; -want +got:\n%s", counts.Bad, diff)
	}
	escaped := `{"\u0074ime":"2026-11-21T09:00:00Z","user\u002dagent":"curl/8","\/x":"1"}` + "\n"
	if got, _ := valuesOf(t, escaped+escaped, "auto", "user-agent", "/x"); len(got) != 2 || got[1] != "09:00:00 | curl/8 | 1" {
		t.Errorf("keys with escapes: %q", got)
	}
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	if _, err := Recognise([]Log{logOf(deep)}, "auto"); err == nil {
		t.Error("an object of 100 levels is read")
	}
}

// TestReadingServersAllocatesNothing holds that for lines of each kind.
func TestReadingServersAllocatesNothing(t *testing.T) {
	for _, test := range serverLogs {
		f, err := Recognise([]Log{logOf(test.log)}, "auto")
		if err != nil {
			t.Fatal(err)
		}
		f.Want(FieldRemote)
		f.Want(":path")
		if err := f.Settle(); err != nil {
			t.Fatal(err)
		}
		r := f.NewReader(math.MaxInt64, func(*Line) error { return nil })
		lines := bytes.Split([]byte(strings.TrimSpace(test.log)), []byte("\n"))
		line := lines[0]
		for _, l := range lines { // one that is a request, not a comment or what a program says else
			if r.line.clear(); f.lines.read(l, r.line, r.each) == nil {
				line = l
			}
		}
		r.one(line)
		if n := testing.AllocsPerRun(100, func() { r.one(line) }); n > 0 {
			t.Errorf("%s: a line takes %v allocations", test.name, n)
		}
	}
}
