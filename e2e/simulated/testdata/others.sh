#!/bin/sh
# Extracts access logs from public repositories for TestCountsOfForeignLogs:
#
#	others.sh CLONES OUT && SLUICE_LOGS=OUT go test ./e2e/simulated -run ForeignLogs -v
#
# CLONES/OWNER/NAME is a clone of github.com/OWNER/NAME. The extracted logs belong to
# others: do not commit them. Files in OUT are named KIND.NUMBER.
set -eu
clones=$1 out=$2
mkdir -p "$out"
n=0
while read -r kind repository path; do
	n=$((n + 1))
	git -C "$clones/$repository" show "HEAD:$path" >"$out/$kind.$n" || rm "$out/$kind.$n"
done <<'LIST'
cloudfront elastic/integrations packages/aws/data_stream/cloudfront_logs/_dev/test/pipeline/test-cloudfront.log
traefik-json elastic/integrations packages/traefik/data_stream/access/_dev/test/pipeline/test-format-json.log
combined elastic/examples Common Data Formats/apache_logs/apache_logs
combined tstack/lnav test/logfile_shop_access_log.0
combined tstack/lnav docs/tutorials/playground/logs/access_log.gz
combined crowdsecurity/hub .tests/http-dos-bypass-cache/http_dos_bypass_cache.log
common crowdsecurity/hub .tests/apache2-http-sensitive-files/apache2-http-sensitive-files.log
nginx crowdsecurity/hub .tests/nginx-http-xss-probing/nginx-http-xss-probing.log
nginx-syslog crowdsecurity/hub .tests/http-bf-wordpress-bf/http-bf-wordpress-bf.log
caddy crowdsecurity/hub .tests/caddy-logs/caddy-logs.log
caddy tstack/lnav test/logfile_caddy_log.1
traefik crowdsecurity/hub .tests/traefik_clf/traefik_clf.log
traefik-json crowdsecurity/hub .tests/traefik_base-http-scenario/traefik_base-http-scenario.log
traefik-json crowdsecurity/hub .tests/traefik_json/traefik_json.log
haproxy crowdsecurity/hub .tests/haproxy-logs/haproxy-logs.log
haproxy-syslog tstack/lnav test/logfile_haproxy.0
alb crowdsecurity/hub .tests/aws-alb-http-bad-user-agent/aws-alb-http-bad-user-agent.log
alb crowdsecurity/hub .tests/aws-alb-logs/aws-alb-logs.log
iis tstack/lnav test/logfile_w3c_big.0
cri crowdsecurity/hub .tests/envoy-http-crawl-non_statics/envoy-http-crawl-non_statics.log
LIST
