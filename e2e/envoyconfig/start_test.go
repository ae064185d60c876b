package envoyconfig_test

import (
	"encoding/json"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// testEnvoy is a real Envoy with its rate limit service, and its configuration as read by envoyconfig.
type testEnvoy struct {
	text     []byte
	config   *envoyconfig.Config
	recorder *recorder
	envoy    *envoy.Envoy
}

// startTestEnvoy starts an Envoy with the given bootstrap.
func startTestEnvoy(t *testing.T, bootstrap object) *testEnvoy {
	t.Helper()
	text, err := json.MarshalIndent(bootstrap, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	a := &testEnvoy{text: text}
	if a.config, err = envoyconfig.Read([]envoyconfig.File{{Name: "envoy.json", Content: text}}); err != nil {
		t.Fatal(err)
	}
	a.recorder = startRecorder(t)
	a.envoy = startEnvoy(t, text, a.recorder)
	return a
}

// calls sends a request to Envoy and returns the computed calls.
func (a *testEnvoy) calls(t *testing.T, request envoyconfig.Request) *envoyconfig.Calls {
	t.Helper()
	send(t, a.envoy, []envoyconfig.Request{request})
	calls, err := a.config.Calls(request)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// listener returns a listener on loopback with the given connection manager.
func listener(name string, manager object) object {
	manager["@type"] = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	return object{
		"name": name, "address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 0}},
		"filter_chains": list{object{"filters": list{object{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}}},
	}
}
