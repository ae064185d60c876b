package main

import (
	"crypto/fips140"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestVersionNamesFIPSModule verifies that the version names the FIPS 140-3 module if the test was
// built with it (make test-fips).
func TestVersionNamesFIPSModule(t *testing.T) {
	b := currentBuild()
	if wanted := os.Getenv("GOFIPS140"); wanted != "" && wanted != "off" && b.FIPS == "" {
		t.Errorf("built with GOFIPS140=%s, but the version does not name the module", wanted)
	}
	if named := strings.Contains(versionText(b), "FIPS 140-3 module "+b.FIPS); named != fips140.Enabled() {
		t.Errorf("FIPS mode is %v, and the version is %q", fips140.Enabled(), versionText(b))
	}
}

func TestBuildOf(t *testing.T) {
	type settings = []debug.BuildSetting
	vcs := settings{{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.time", Value: "2026-11-21T18:57:30Z"}}
	for name, tt := range map[string]struct {
		release, revision, commitDate string
		info                          debug.BuildInfo
		want                          telemetry.Build
	}{
		"by make":       {"v1", "c", "d", debug.BuildInfo{Settings: vcs}, telemetry.Build{Version: "v1", Revision: "c", CommitDate: "d"}},
		"released":      {"v1", "", "", debug.BuildInfo{Settings: vcs}, telemetry.Build{Version: "v1", Revision: "c0ffee", CommitDate: "2026-11-21T18:57:30Z"}},
		"by go install": {"", "", "", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, telemetry.Build{Version: "v1.2.3"}},
		"unknown":       {"", "", "", debug.BuildInfo{}, telemetry.Build{Version: "unknown"}},
	} {
		tt.want.Go, tt.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
		if got := buildOf(tt.release, tt.revision, tt.commitDate, &tt.info); got != tt.want {
			t.Errorf("%s: buildOf = %+v, want %+v", name, got, tt.want)
		}
	}
}
