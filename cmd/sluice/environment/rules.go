package environment

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var runtimeNames = []string{
	"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT", "RUNTIME_IGNOREDOTFILES",
}

func (e *Environment) assignSource() {
	xds := e.set["CONFIG_TYPE"] == "GRPC_XDS_SOTW"
	const byFlag = "the command line sets the source of rules"
	switch {
	case e.given["config"] || e.given["xds-addr"]:
		e.markUnused(byFlag, append(runtimeNames, "CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL")...)
	case xds:
		e.markUnused("rules come over xDS", runtimeNames...)
		e.setFlag("xds-addr", e.valueOr("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), "CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL")
	default:
		e.markUnused("CONFIG_TYPE is not GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL")
		if e.anySet(runtimeNames...) {
			e.assignRuntime()
		}
	}
	if !e.given["xds-addr"] && (!xds || e.given["config"]) {
		for v := range All() {
			if strings.HasPrefix(v.Name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(v.Name, "XDS_CLIENT_") {
				e.markUnused("rules do not come over xDS", v.Name)
			}
		}
		return
	}
	e.assignXDS()
}

// assignRuntime selects the rule files as envoyproxy/ratelimit does.
func (e *Environment) assignRuntime() {
	dir := filepath.Join(e.valueOr("RUNTIME_ROOT", "/srv/runtime_data/current"), e.set["RUNTIME_SUBDIRECTORY"])
	app := e.valueOr("RUNTIME_APPDIRECTORY", "config")
	if e.isFalse("RUNTIME_IGNOREDOTFILES") {
		e.markUnused(lookup("RUNTIME_IGNOREDOTFILES").note, "RUNTIME_IGNOREDOTFILES")
	}
	from := runtimeNames[:4]
	if e.isFalse("RUNTIME_WATCH_ROOT") {
		e.setFlag("config", filepath.Join(dir, app), from...)
		return
	}
	if e.set["RUNTIME_SUBDIRECTORY"] == "" {
		e.addProblem(`RUNTIME_SUBDIRECTORY is not set while RUNTIME_WATCH_ROOT is true: envoyproxy/ratelimit would read no files and limit nothing.
Set it, or RUNTIME_WATCH_ROOT=false, or --config PATH`)
		return
	}
	e.setFlag("config", dir, from...)
	e.setFlag("config-prefix", app+".", from...)
}

func (e *Environment) assignXDS() {
	if e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		e.setFlag("start-without-rules", "true", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	if text := e.set["CONFIG_GRPC_XDS_NODE_METADATA"]; text != "" {
		items := slices.DeleteFunc(strings.Split(text, ","), func(item string) bool { return !strings.Contains(item, "=") })
		e.setFlag("xds-node-metadata", strings.Join(items, ","), "CONFIG_GRPC_XDS_NODE_METADATA")
	}
	if text := e.set["CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"]; text != "" {
		headers, _ := parsePairs(text)
		var all []any
		for _, h := range headers {
			all = append(all, h[0]+"="+h[1])
		}
		e.setFlag("xds-header", all, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS")
	}
	// 0 means the default, as in envoyproxy/ratelimit.
	if n, err := strconv.ParseInt(e.set["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"], 0, 64); err == nil && n != 0 {
		e.setFlag("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", strconv.FormatInt(n, 10), "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
	}
	// The initial interval is capped at the maximum, as in envoyproxy/ratelimit.
	const first, longest = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"
	initial, err1 := time.ParseDuration(e.valueOr(first, "10s"))
	most, err2 := time.ParseDuration(e.valueOr(longest, "60s"))
	if err1 == nil && err2 == nil && initial > most {
		e.setFlag(first, most.String(), first, longest)
	} else if e.anySet(first) {
		e.setFlag(first, e.set[first], first)
	}
}
