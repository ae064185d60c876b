package simulated_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// request is a line of a generated log.
type request struct {
	at            time.Time
	address, path string
	status        int
	agent         string
}

func (r *request) clf() string { return r.at.Format("02/Jan/2006:15:04:05 -0700") }

// combined formats a line in the combined log format.
func (r *request) combined() string {
	return fmt.Sprintf(`%s - - [%s] "GET %s HTTP/1.1" %d 512 "-" "%s"`, r.address, r.clf(), r.path, r.status, r.agent)
}

func (r *request) haproxy() string {
	return fmt.Sprintf(`%s:33317 [%s] http-in~ static/srv1 10/0/30/69/109 %d 2750 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET %s HTTP/1.1"`,
		r.address, r.at.UTC().Format("02/Jan/2006:15:04:05.000"), r.status, r.path)
}

func (r *request) w3c(separator string) string {
	return strings.Join([]string{r.at.UTC().Format("2006-01-02"), r.at.UTC().Format("15:04:05"), r.address, "GET", r.path, strconv.Itoa(r.status), "-"}, separator)
}

const w3cHeader = "#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri-stem sc-status cs(User-Agent)\n"

// countedKind is a kind of log: the format of its lines, and its header.
type countedKind struct {
	line   func(r *request) string
	header string
	// hasPort is true if addresses have a port.
	hasPort bool
}

// counted contains the kinds of logs that count.py supports, by their names there.
var counted = map[string]countedKind{
	"common": {line: func(r *request) string {
		return fmt.Sprintf(`%s - - [%s] "GET %s HTTP/1.1" %d 512`, r.address, r.clf(), r.path, r.status)
	}},
	"combined": {line: (*request).combined},
	"nginx":    {line: func(r *request) string { return r.combined() + ` "198.51.100.1, 10.0.0.1" 0.012` }},
	"ingress-nginx": {line: func(r *request) string {
		return r.combined() + ` 38 0.004 [shop-web-80] [] 10.42.0.9:80 5 0.004 200 6e2baf`
	}},
	"nginx-json": {line: func(r *request) string {
		return fmt.Sprintf(`{"time_local":"%s","remote_addr":"%s","request":"GET %s HTTP/1.1","status": "%d","http_user_agent":"%s"}`, r.clf(), r.address, r.path, r.status, r.agent)
	}},
	"caddy": {line: func(r *request) string {
		return fmt.Sprintf(`{"level":"info","ts":%d.%06d,"logger":"http.log.access","request":{"remote_ip":"10.0.0.1","client_ip":"%s","method":"GET","uri":"%s","headers":{"User-Agent":["%s"]}},"status":%d}`,
			r.at.Unix(), r.at.Nanosecond()/1000, r.address, r.path, r.agent, r.status)
	}},
	"traefik": {line: func(r *request) string { return r.combined() + ` 17 "shop@docker" "http://10.0.0.9:80" 3ms` }},
	"traefik-json": {line: func(r *request) string {
		return fmt.Sprintf(`{"ClientAddr":"%s:1","ClientHost":"%[1]s","DownstreamStatus":%d,"RequestPath":"%s","StartUTC":"%s","time":"%s"}`,
			r.address, r.status, r.path, r.at.UTC().Format(time.RFC3339Nano), r.at.Add(90*time.Second).Format(time.RFC3339))
	}},
	"haproxy":        {line: (*request).haproxy, hasPort: true},
	"haproxy-syslog": {line: func(r *request) string { return "Nov 21 09:00:00 lb haproxy[14389]: " + r.haproxy() }, hasPort: true},
	"nginx-syslog":   {line: func(r *request) string { return "<190>Nov 21 09:00:00 web nginx[7]: " + r.combined() }},
	"alb": {line: func(r *request) string {
		return fmt.Sprintf(`https %s app/shop/1 %s:2817 10.0.0.1:80 0.086 0.048 0.037 %d %[3]d 0 57 "GET https://shop.example:443%s HTTP/1.1" "%s" ECDHE TLSv1.2 arn:aws:x "Root=1" "shop.example" "arn:aws:y" 1 %s "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1`,
			r.at.Add(time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z"), r.address, r.status, r.path, r.agent, r.at.UTC().Format("2006-01-02T15:04:05.000000Z"))
	}, hasPort: true},
	"cloudfront": {line: func(r *request) string { return r.w3c("\t") }, header: w3cHeader},
	"iis":        {line: func(r *request) string { return r.w3c(" ") }, header: w3cHeader},
	"cri": {line: func(r *request) string {
		return fmt.Sprintf(`%s stdout F {"start_time":"%s","downstream_remote_address":"%s:1","response_code":%d,"path":"%s"}`,
			r.at.Add(time.Minute).Format(time.RFC3339Nano), r.at.UTC().Format("2006-01-02T15:04:05.000Z"), r.address, r.status, r.path)
	}, hasPort: true},
	"docker": {line: func(r *request) string {
		return fmt.Sprintf(`{"log":%s,"stream":"stdout","time":"%s"}`, strconv.Quote(r.combined()+"\n"), r.at.Add(time.Minute).Format(time.RFC3339Nano))
	}},
	"squid": {line: func(r *request) string {
		return fmt.Sprintf(`%d.%03d %6d %s TCP_MISS/%d 507 GET http://shop.example%s - HIER_DIRECT/10.0.0.1 text/html`,
			r.at.Unix(), r.at.Nanosecond()/1e6, r.status, r.address, r.status, r.path)
	}},
	"caddy-console": {line: func(r *request) string {
		return fmt.Sprintf("%s\tinfo\thttp.log.access\thandled request\t"+`{"request":{"remote_ip":"10.0.0.1","client_ip":"%s","method":"GET","uri":"%s","headers":{}},"status":%d}`,
			r.at.UTC().Format("2006/01/02 15:04:05.000"), r.address, r.path, r.status)
	}},
	"ltsv": {line: func(r *request) string {
		return fmt.Sprintf("time:[%s]\thost:%s\treq:GET %s HTTP/1.1\tstatus:%d\tua:%s\tvhost:shop.example", r.clf(), r.address, r.path, r.status, r.agent)
	}},
	"ovh": {line: func(r *request) string { return strings.Replace(r.combined(), " - - ", " shop.example - ", 1) }},
	"gandi": {line: func(r *request) string {
		return "shop.example " + strings.Replace(r.combined(), `] "`, `] (0 s) "`, 1)
	}},
	"zoraxy": {line: func(r *request) string {
		return fmt.Sprintf("%s [%s] [router:host-http] [origin:shop.example] [client: %s] [useragent: %s] GET %s %d",
			r.at.Add(time.Minute).UTC().Format("2006/01/02 15:04:05"), r.at.UTC().Format("2006-01-02 15:04:05.000000"), r.address, r.agent, r.path, r.status)
	}},
	"npmplus": {line: func(r *request) string {
		return fmt.Sprintf(`[%s] shop.example %s 0.227 "GET %s HTTP/2.0" %d 125 440 - %s`, r.clf(), r.address, r.path, r.status, r.agent)
	}},
	"zeek": {line: func(r *request) string {
		return fmt.Sprintf("%d.%06d\tCh1\t%s\t5000\tGET\tshop.example\t%s\t%s\t%d", r.at.Unix(), r.at.Nanosecond()/1000, r.address, r.path, r.agent, r.status)
	}, header: "#separator \\x09\n#path\thttp\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tmethod\thost\turi\tuser_agent\tstatus_code\n#types\ttime\tstring\taddr\tport\tstring\tstring\tstring\tstring\tcount\n"},
	"zeek-json": {line: func(r *request) string {
		return fmt.Sprintf(`{"ts":%d.%06d,"uid":"Ch1","id.orig_h":"%s","id.resp_h":"10.0.0.1","method":"GET","uri":"%s","status_code":%d}`,
			r.at.Unix(), r.at.Nanosecond()/1000, r.address, r.path, r.status)
	}},
	"iis-date": {line: func(r *request) string {
		return r.at.UTC().Format("15:04:05") + " " + r.address + " GET " + r.path + " " + strconv.Itoa(r.status)
	}, header: "#Date: 2026-11-21 09:00:00\n#Fields: time c-ip cs-method cs-uri-stem sc-status\n"},
	"s3": {line: func(r *request) string {
		return fmt.Sprintf(`79a59d shop [%s] %s - 3E57 REST.GET.OBJECT a "GET %s HTTP/1.1" %d - 113 113 7 6 "-" "%s" - id SigV4 ECDHE AuthHeader shop.s3.amazonaws.com TLSv1.2 - -`,
			r.clf(), r.address, r.path, r.status, r.agent)
	}},
	"iis-own": {line: func(r *request) string {
		return fmt.Sprintf(`%s, -, %s, W3SVC2, SERVER, 10.0.0.1, 4502, 163, 3223, %d, 0, GET, /a, -,`, r.address, r.at.UTC().Format("1/2/06, 15:04:05"), r.status)
	}, header: "#Software: Microsoft Internet Information Services 6.0\n#Date: 2026-11-21 09:00:00\n"},
	"apisix": {line: func(r *request) string {
		return strings.NewReplacer(`] "`, `] shop.example "`, ` 512 `, ` 512 0.003 `).Replace(r.combined()) + ` 10.0.0.1:80 200 0.002 "http://shop.example/a"`
	}},
	"elb": {line: func(r *request) string {
		return fmt.Sprintf(`%s shop %s:2817 10.0.0.1:80 0.000073 0.001048 0.000057 %d 200 0 29 "GET http://shop.example:80%s HTTP/1.1" "%s" - -`,
			r.at.UTC().Format("2006-01-02T15:04:05.000000Z"), r.address, r.status, r.path, r.agent)
	}, hasPort: true},
	"kong": {line: func(r *request) string {
		return fmt.Sprintf(`{"started_at":%d,"client_ip":"%s","latencies":{"request":5},"request":{"method":"GET","uri":"%s","headers":{"host":"shop.example"}},"response":{"status":%d}}`,
			r.at.UnixMilli(), r.address, r.path, r.status)
	}},
	"cloudflare": {line: func(r *request) string {
		return fmt.Sprintf(`{"ClientIP":"%s","ClientRequestURI":"%s","EdgeEndTimestamp":%d,"EdgeResponseStatus":%d,"EdgeStartTimestamp":%d}`,
			r.address, r.path, r.at.Add(time.Minute).UnixNano(), r.status, r.at.UnixNano())
	}},
	"gcp": {line: func(r *request) string {
		return fmt.Sprintf(`{"httpRequest":{"requestMethod":"GET","requestUrl":"https://shop.example%s","status":%d,"remoteIp":"%s"},"timestamp":"%s","receiveTimestamp":"%s"}`,
			r.path, r.status, r.address, r.at.UTC().Format(time.RFC3339Nano), r.at.Add(time.Minute).UTC().Format(time.RFC3339Nano))
	}},
	"frontdoor": {line: func(r *request) string {
		return fmt.Sprintf(`{"time":"%s","category":"FrontDoorAccessLog","properties":{"httpMethod":"GET","requestUri":"https://shop.example:443%s","clientIp":"%s","httpStatusCode":"%d"}}`,
			r.at.UTC().Format(time.RFC3339Nano), r.path, r.address, r.status)
	}},
	"fastly": {line: func(r *request) string {
		return fmt.Sprintf(`{"timestamp":"%s","client_ip":"%s","host":"shop.example","url":"%s","request_method":"GET","response_status":%d}`,
			r.at.Format("2006-01-02T15:04:05-0700"), r.address, r.path, r.status)
	}},
	"pino": {line: func(r *request) string {
		return fmt.Sprintf(`{"level":30,"time":%d,"req":{"method":"GET","url":"%s","headers":{},"remoteAddress":"%s"},"res":{"statusCode":%d},"msg":"request completed"}`,
			r.at.UnixMilli(), r.path, r.address, r.status)
	}},
	"w3c-quoted": {line: func(r *request) string {
		return fmt.Sprintf("%s\t%s\t%s\t\"an agent with \"\"quotes\"\"\"\t%d", r.at.UTC().Format("15:04:05"), r.address, r.at.UTC().Format("2006-01-02"), r.status)
	}, header: "#Fields: time c-ip date cs(User-Agent) sc-status\n"},
}
