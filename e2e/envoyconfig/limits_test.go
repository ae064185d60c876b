package envoyconfig_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestLimitsOfMetadata compares the computed calls with those of the real Envoy, for valid and
// invalid limits in the dynamic metadata.
func TestLimitsOfMetadata(t *testing.T) {
	suite.Envoy(t, root)
	var set, policies list
	metadata := map[string]string{}
	for i, value := range []any{
		object{"requests_per_unit": 12, "unit": "HOUR"},
		object{"requests_per_unit": 12.9, "unit": "SECOND"},
		object{"requests_per_unit": 0, "unit": "DAY"},
		object{"requests_per_unit": 4294967295, "unit": "YEAR"},
		object{"requests_per_unit": 12, "unit": "UNKNOWN"},
		object{"requests_per_unit": 12, "unit": "hour"},
		object{"requests_per_unit": "12", "unit": "HOUR"},
		object{"requests_per_unit": 12, "unit": 3},
		object{"requests_per_unit": 12},
		object{"unit": "HOUR"},
		object{"Requests_Per_Unit": 12, "Unit": "HOUR"},
		object{"requests_per_unit": 12, "unit": "MONTH", "more": true},
		"12/hour",
		12,
		nil,
		list{1},
	} {
		key := fmt.Sprint("limit", i)
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		metadata["ns:"+key] = string(text)
		set = append(set, object{"metadata_namespace": "ns", "allow_overwrite": true, "value": object{key: value}})
		policies = append(policies, object{
			"actions": list{object{"generic_key": object{"descriptor_value": key}}},
			"limit":   object{"dynamic_metadata": object{"metadata_key": object{"key": "ns", "path": list{object{"key": key}}}}},
		})
	}
	config := frame(list{httpFilter("sets", "set_metadata.v3.Config", object{"metadata": set}), generator{}.filter("limit", object{"domain": "first"})}, object{
		"virtual_hosts": list{object{
			"name": "all", "domains": list{"*"}, "rate_limits": policies,
			"routes": list{object{"match": object{"prefix": "/"}, "route": object{"cluster": "backend"}}},
		}},
	}, testClusters)
	a := startTestEnvoy(t, config)
	request := envoyconfig.Request{
		Method: "GET", Scheme: "http", Authority: "a", Path: "/", Listener: "ingress", Metadata: metadata,
		Headers: []envoyconfig.Header{{Name: caseHeader, Value: "0"}},
	}
	calls := a.calls(t, request)
	var count tally
	if want, got := count.calls(calls), a.recorder.callsOf("0"); !agree(want, got) { // all calls are recorded, since Envoy awaited their replies
		t.Errorf("computed %v\nEnvoy made the calls %v", want, got)
	}
}
