package e2e_test

import (
	"path"
	"path/filepath"
	"testing"
)

// TestFuzzTargetsHaveSeeds checks that each parser of untrusted bytes has a fuzz target with a seed
// corpus, which go test always runs.
func TestFuzzTargetsHaveSeeds(t *testing.T) {
	known := listTests(t)
	for read, target := range map[string]string{
		"rules":           "descriptors/rulefile.FuzzParse",
		"matched entries": "descriptors.FuzzMatch",
		"defaults":        "descriptors/rulefile.FuzzDefaults",
		"request bytes":   "server/answer.FuzzDecode",
		"clients' names":  "server/access.FuzzAllowList",
		"requests":        "server/answer.FuzzAnswer",
		"/json":           "server.FuzzJSON",
		"/counters":       "server/admin.FuzzCounterQuery",
		"xDS resources":   "xds.FuzzConvert",
		"environment":     "cmd/sluice.FuzzEnvironment",
		"frames":          "server/transport/h2.FuzzConnection",
		"header blocks":   "server/transport/h2.FuzzHeaderBlocks",
		"Huffman codes":   "server/transport/h2.FuzzHuffman",
		"Envoy's files":   "envoyconfig.FuzzRead",
		"default logs":    "simulate.FuzzText",
		"logs by format":  "simulate.FuzzFormat",
		"JSON logs":       "simulate.FuzzJSON",
		"servers' logs":   "simulate.FuzzVariables",
		"logs of any":     "simulate/accesslog.FuzzRecognise",
		"logged requests": "simulate.FuzzRequests",
		"state files":     "limiter.FuzzLoad",
		"quota reports":   "rlqs.FuzzDecode",
	} {
		if !known[target] {
			t.Errorf("%s: missing fuzz target %s", read, target)
			continue
		}
		folder, name := path.Split(target)
		in, name := name[:len(name)-len(path.Ext(name))], path.Ext(name)[1:]
		inputs, err := filepath.Glob(filepath.Join("..", folder+in, "testdata/fuzz", name, "*"))
		if err != nil || len(inputs) == 0 {
			t.Errorf("%s: %s has no seed corpus in testdata/fuzz (%v)", read, target, err)
		}
	}
}
