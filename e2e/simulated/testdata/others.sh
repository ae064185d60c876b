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
combined elastic/examples Common Data Formats/apache_logs/apache_logs
combined tstack/lnav test/logfile_shop_access_log.0
combined tstack/lnav docs/tutorials/playground/logs/access_log.gz
combined crowdsecurity/hub .tests/http-dos-bypass-cache/http_dos_bypass_cache.log
common crowdsecurity/hub .tests/apache2-http-sensitive-files/apache2-http-sensitive-files.log
cri crowdsecurity/hub .tests/envoy-http-crawl-non_statics/envoy-http-crawl-non_statics.log
LIST
