package main

import (
	"runtime/debug"
	"testing"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

func TestBuildOf(t *testing.T) {
	type settings = []debug.BuildSetting
	vcs := settings{{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.time", Value: "2026-11-21T18:57:30Z"}}
	for name, tt := range map[string]struct {
		stamped telemetry.Build
		info    debug.BuildInfo
		want    telemetry.Build
	}{
		"by make":    {telemetry.Build{Version: "v1", Revision: "c", CommitDate: "d"}, debug.BuildInfo{Settings: vcs}, telemetry.Build{Version: "v1", Revision: "c", CommitDate: "d"}},
		"released":   {telemetry.Build{Version: "v1"}, debug.BuildInfo{Settings: vcs}, telemetry.Build{Version: "v1", Revision: "c0ffee", CommitDate: "2026-11-21T18:57:30Z"}},
		"in a clone": {telemetry.Build{}, debug.BuildInfo{Settings: vcs}, telemetry.Build{Version: "c0ffee", Revision: "c0ffee", CommitDate: "2026-11-21T18:57:30Z"}},
		"modified": {
			telemetry.Build{},
			debug.BuildInfo{Settings: append(settings{{Key: "vcs.modified", Value: "true"}}, vcs...)},
			telemetry.Build{Version: "c0ffee (modified)", Revision: "c0ffee", CommitDate: "2026-11-21T18:57:30Z"},
		},
		"by go install": {telemetry.Build{}, debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, telemetry.Build{Version: "v1.2.3"}},
		"unknown":       {telemetry.Build{}, debug.BuildInfo{}, telemetry.Build{Version: "unknown"}},
	} {
		if got := buildOf(tt.stamped, &tt.info); got != tt.want {
			t.Errorf("%s: buildOf = %+v, want %+v", name, got, tt.want)
		}
	}
}
