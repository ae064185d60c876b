package envoyconfig_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestUpgrades compares computed and real calls for requests that ask for a protocol upgrade.
func TestUpgrades(t *testing.T) {
	suite.Envoy(t, root)
	router := httpFilter("router", "router.v3.Router", nil)
	own := list{generator{}.filter("own", object{"domain": "second"}), router}
	var listeners list
	for i, configs := range []list{
		nil,
		{object{"upgrade_type": "websocket"}},
		{object{"upgrade_type": "websocket", "enabled": false}},
		{object{"upgrade_type": "WebSocket", "filters": own}},
		{object{"upgrade_type": "other", "filters": own}},
		{object{"upgrade_type": "websocket", "enabled": false, "filters": own}},
	} {
		manager := object{
			"stat_prefix": "ingress", "http_filters": list{generator{}.filter("limit", object{"domain": "first"}), router},
			"route_config": object{"virtual_hosts": list{object{
				"name": "all", "domains": list{"*"},
				"rate_limits": list{
					object{"actions": list{object{"generic_key": object{"descriptor_value": "now"}}}},
					object{"actions": list{object{"generic_key": object{"descriptor_value": "late"}}}, "apply_on_stream_done": true},
				},
				"routes": list{
					object{"match": object{"prefix": "/on"}, "route": object{"cluster": "backend", "upgrade_configs": list{object{"upgrade_type": "websocket"}}}},
					object{"match": object{"prefix": "/off"}, "route": object{"cluster": "backend", "upgrade_configs": list{object{"upgrade_type": "Websocket", "enabled": false}}}},
					object{"match": object{"prefix": "/"}, "route": object{"cluster": "backend"}},
				},
			}}},
		}
		if configs != nil {
			manager["upgrade_configs"] = configs
		}
		listeners = append(listeners, listener(fmt.Sprint("l", i), manager))
	}
	a := startTestEnvoy(t, object{"static_resources": object{"listeners": listeners, "clusters": testClusters}})
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	n := 0
	for i := range listeners {
		for _, path := range []string{"/", "/on", "/off"} {
			for _, headers := range [][]envoyconfig.Header{
				nil,
				{{Name: "upgrade", Value: "websocket"}, {Name: "connection", Value: "Upgrade"}},
				{{Name: "upgrade", Value: "websocket"}},
				{{Name: "upgrade", Value: "other"}, {Name: "connection", Value: "keep-alive, upgrade"}},
				{{Name: "upgrade", Value: "h2c"}, {Name: "connection", Value: "Upgrade"}},
				{{Name: "upgrade", Value: ""}, {Name: "connection", Value: "Upgrade"}},
			} {
				request := envoyconfig.Request{
					Method: "GET", Scheme: "http", Authority: "a", Path: path, Listener: fmt.Sprint("l", i),
					Headers: append(headers, envoyconfig.Header{Name: caseHeader, Value: strconv.Itoa(n)}),
				}
				calls := a.calls(t, request)
				var count tally
				want := count.calls(calls)
				if got := a.recorder.await(strconv.Itoa(n), len(want), ctx.Done()); !agree(want, got) {
					t.Errorf("%s: computed %v, Envoy made the calls %v", requestText(request), want, got)
				}
				n++
			}
		}
	}
}
