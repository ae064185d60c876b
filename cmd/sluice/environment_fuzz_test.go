package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// FuzzEnvironment reads arbitrary lines as the environment. Each error must name a variable, and
// must not contain the value of a secret one.
func FuzzEnvironment(f *testing.F) {
	for _, text := range []string{
		"BACKEND_TYPE=memory\nPORT=8080\nHOST=::\nGRPC_PORT=0x1f91\nLOG_FORMAT=JSON\nSHADOW_MODE=t",
		"USE_DOG_STATSD=true\nDOG_STATSD_MOGRIFIER=A\nDOG_STATSD_MOGRIFIER_A_PATTERN=^a\\.(.+)$\nDOG_STATSD_MOGRIFIER_A_NAME=b\nDOG_STATSD_MOGRIFIER_A_TAGS=c:$1\nEXTRA_TAGS=a:b,c:d",
		"CONFIG_TYPE=GRPC_XDS_SOTW\nCONFIG_GRPC_XDS_NODE_ID=n\nCONFIG_GRPC_XDS_SERVER_URL=h:1\nCONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b\nXDS_CLIENT_BACKOFF_INITIAL_INTERVAL=1s",
		"GRPC_SERVER_USE_TLS=true\nGRPC_SERVER_TLS_CERT=c\nGRPC_SERVER_TLS_KEY=k\nGRPC_CLIENT_TLS_CACERT=a",
		"TRACING_ENABLED=true\nTRACING_EXPORTER_PROTOCOL=grpc\nTRACING_SAMPLING_RATE=7\nOTEL_EXPORTER_OTLP_ENDPOINT=h:1\nOTEL_EXPORTER_OTLP_HEADERS=a=%zz",
		"REDIS_URL=r:6379\nREDIS_AUTH=a-secret-word\nBACKEND_TYPE=memcache\nPORT=tcp://10.0.0.1:80",
		"REDIS_URL=redis://user:\nREDIS_TLS=true\nREDIS_TLS_CACERT=c\nBACKEND_TYPE=redis\nREDIS_TYPE=single\nREDIS_SOCKET_TYPE=tcp",
		"REDIS_URL=/\nREDIS_SOCKET_TYPE=tcp\nREDIS_TLS=true\nREDIS_AUTH=user:",
		"REDIS_URL=a,redis://user:\nREDIS_TYPE=ring\nREDIS_AUTH=user:",
		"CONFIG_TYPE=GRPC_XDS_SOTW\nCONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization-of-no-form",
		"RUNTIME_ROOT=/data\nRUNTIME_SUBDIRECTORY=s\nRUNTIME_APPDIRECTORY=config\nRUNTIME_WATCH_ROOT=false\nNEAR_LIMIT_RATIO=2\nGRPC_MAX_CONNECTION_AGE=-1h",
	} {
		f.Add(text)
	}
	parser, err := newParser(new(cli), "sluice", console{nil, io.Discard, io.Discard})
	must.OK(f, err)
	var flags []*kong.Flag
	for _, command := range parser.Model.Children {
		if command.Name == "serve" {
			flags = command.Flags
		}
	}
	var secrets []string
	for v := range environment.All() {
		if v.Secret() {
			secrets = append(secrets, v.Name)
		}
	}
	const hidden = "a text that occurs nowhere else"
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, hidden) {
			return
		}
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if name, _, _ := strings.Cut(line, "="); slices.Contains(secrets, name) {
				lines[i] = line + hidden
			}
		}
		e, err := environment.Read(lines, nil, nil)
		var wrong []error
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			wrong = joined.Unwrap()
		}
		for _, flag := range flags {
			if _, err := e.Resolve(nil, nil, flag); err != nil {
				wrong = append(wrong, err)
			}
		}
		for _, err := range wrong {
			named := false
			for v := range environment.All() {
				named = named || strings.Contains(err.Error(), v.Name)
			}
			for _, line := range lines {
				name, value, _ := strings.Cut(line, "=")
				named = named || value != "" && strings.Contains(err.Error(), name)
			}
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("%q shows a secret value of %q", err, text)
			}
			if !named {
				t.Errorf("%q names no variable, of %q", err, text)
			}
		}
		core, logs := observer.New(zap.DebugLevel)
		e.Report(zap.New(core))
		for _, line := range logs.All() {
			if strings.Contains(fmt.Sprint(line.Message, line.ContextMap()), hidden) {
				t.Errorf("the report shows a secret value of %q: %v", text, line)
			}
		}
	})
}
