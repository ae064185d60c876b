package accesslog

// serverFormat is the log format of a server. Formats of servers other than Envoy use nginx's
// variables, and similar names for values that nginx lacks.
type serverFormat struct {
	server, format string
	// noRequest is the request line of lines without a request.
	noRequest string
}

// textFormats are the recognised formats. If several match, the first wins.
var textFormats = []serverFormat{
	{"Envoy's format", envoyFormat, ""},
	{"Istio's format", istioFormat, ""},
	{"the common log format", commonFormat, ""},
	{"the combined log format", combinedFormat, ""},
	{"nginx's format", combinedFormat + ` "$http_x_forwarded_for"`, ""},
	{"nginx's format with the request's time", combinedFormat + ` $request_time`, ""},
	{"nginx's format with the request's time", combinedFormat + ` "$http_x_forwarded_for" $request_time`, ""},
	{"nginx's format with the request's time", combinedFormat + ` $request_time "$http_x_forwarded_for"`, ""},
	{"ingress-nginx's format", combinedFormat + ` $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $rest`, ""},
	{"Traefik's format", combinedFormat + ` $request_count "$router_name" "$service_url" ${duration}ms`, ""},
	{"nginx's format", combinedFormat + ` "$http_x_forwarded_for"$rest`, ""},
	{"the combined log format with additional fields", combinedFormat + `$rest`, ""},
	{"the common log format with additional fields", commonFormat + ` $rest`, ""},
	{"Apache's format of virtual hosts", `$server_name:$server_port ` + combinedFormat, ""},
	{"the combined log format after a host", `$server_name ` + combinedFormat + `$rest`, ""},
	{"nginx Proxy Manager's format", `[$time_local] $upstream_cache_status $upstream_status $status ` + npmFormat + `[Sent-to $server] "$http_user_agent" "$http_referer"`, ""},
	{"nginx Proxy Manager's format", `[$time_local] $status ` + npmFormat + `"$http_user_agent" "$http_referer"`, ""},
	{"NPMplus' format", `[$time_local] $host $remote_addr $request_time "$request" $status $body_bytes_sent $request_length $rest`, ""},
	{"HAProxy's format", haproxyFormat, ""},
	{"HAProxy's format", haproxyFormat + ` $rest`, ""},
	{"the format of AWS's application load balancers", albFormat + `"$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time "$actions_executed"$rest`, ""},
	{"the format of AWS's application load balancers", albFormat + `"$trace_id"$rest`, ""},
	{"the format of AWS's classic load balancers", `$time $elb ` + elbFormat + ` $ssl_cipher $ssl_protocol`, "- - - "},
	{"the format of AWS's classic load balancers", `$time $elb ` + elbFormat, "- - - "},
	{"the format of AWS's classic load balancers", `$time $elb ` + elbShortFormat, "- - - "}, // older version
	{"S3's format", s3Format + ` $rest`, "-"},
	{"S3's format", s3Format, "-"}, // older version
	{"Squid's format", `$msec $elapsed $remote_addr $result/$status $bytes_sent $request_method $absolute_url $user $hierarchy $content_type`, ""},
	{"IIS's own format", `$remote_addr, $user, $date, $time, $service, $server, $server_ip, $time_taken, $bytes_received, $bytes_sent, ` +
		`$status, $windows_status, $request_method, $target, $query,`, ""},
	{"OVH's format", `$remote_addr $server_name $user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"$rest`, ""},
	{"Gandi's format", `$server_name $remote_addr - $remote_user [$time_local] ($generation_time) "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`, ""},
	{"Zoraxy's format", zoraxyFormat + `[useragent: $http_user_agent] $request_method $target $status`, ""},
	{"Zoraxy's format", zoraxyFormat + `$request_method $target $status`, ""},
	{"APISIX's format", `$remote_addr - $remote_user [$time_local] $host "$request" $status $body_bytes_sent $request_time "$http_referer" "$http_user_agent"$rest`, ""},
	{"BunnyCDN's format", `$cache_status|$status|$msec|$bytes_sent|$zone|$remote_addr|$referer|$absolute_url|$edge|$rest`, ""},
	{"CloudFront's format", "$date\t$time\t${x-edge-location}\t${sc-bytes}\t${c-ip}\t${cs-method}\t${cs(Host)}\t${cs-uri-stem}\t${sc-status}\t" +
		"${cs(Referer)}\t${cs(User-Agent)}\t${cs-uri-query}\t${cs(Cookie)}\t${x-edge-result-type}\t${x-edge-request-id}\t${x-host-header}\t" +
		"${cs-protocol}\t${cs-bytes}\t${time-taken}\t${x-forwarded-for}\t$rest", ""},
}

// s3Format is S3's format up to the user agent.
const s3Format = `$owner $bucket [$time_local] $remote_addr $requester $request_id $operation $key $quoted_request $status $error_code ` +
	`$bytes_sent $object_size $total_time $turn_around_time $quoted_referer $quoted_user_agent`

// prefixes are written before lines of another format by container runtimes, kubectl logs with
// --prefix and --timestamps, docker compose, syslog and others.
var prefixes = []string{
	`$time $stream F $line`,
	`$container | $line`,
	`[$pod] $line`,
	"$time\t$level\t$logger\t$message\t$line", // Caddy's console
	`[$pod] $time $line`,
	`$day $clock $line`, // Go's log package, used by Zoraxy
	`$time $line`,
	`$syslog]: $line`,
	`$syslog: $line`,
	`$pri $time $host $app $procid $msgid - $line`,
}

// Formats of other servers. Apache's and nginx's are equal: the second word, which only Apache can
// set, is a dash unless it queries the client's identity.
const (
	commonFormat   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedFormat = commonFormat + ` "$http_referer" "$http_user_agent"`
	npmFormat      = `- $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $body_bytes_sent] [Gzip $gzip_ratio] `
	haproxyFormat  = `$client [$accept_date] $frontend_name $backend_server $timers $status_code $bytes_read $captured_request_cookie ` +
		`$captured_response_cookie $termination_state $connections $queues $captured"$request"`
	elbShortFormat = `$client $target $request_processing_time $target_processing_time $response_processing_time ` +
		`$elb_status_code $target_status_code $received_bytes $sent_bytes "$request"`
	elbFormat    = elbShortFormat + ` "$user_agent"`
	zoraxyFormat = `[$time_local] [router:$router] [origin:$host] [client: $remote_addr] `
	albFormat    = `$type $time $elb ` + elbFormat + ` $ssl_cipher $ssl_protocol $target_group_arn `
)

// The default formats of Envoy and Istio.
const (
	envoyFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
		`%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
		`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	istioFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
		`%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
		`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
		`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% ` +
		`%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% ` +
		`%REQUESTED_SERVER_NAME% %ROUTE_NAME%`
)
