package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestDockerfileMakesTheSameImage holds what the Dockerfile says after FROM scratch
// against the image that the program makes.
func TestDockerfileMakesTheSameImage(t *testing.T) {
	text, err := os.ReadFile(source + "/Dockerfile")
	check(t, err)
	config, err := only(t, readLayout(t, built)).ConfigFile()
	check(t, err)
	for _, why := range differences(t, string(text), config.Config) {
		t.Error(why)
	}
}

// TestDifferences plants what must be found.
func TestDifferences(t *testing.T) {
	text, err := os.ReadFile(source + "/Dockerfile")
	check(t, err)
	at, err := time.Parse(time.RFC3339, committed)
	check(t, err)
	image, err := assemble(release{version: "v1.2.3", revision: "c0ffee", committed: at}, mustRead(t), nil)
	check(t, err)
	file, err := image.ConfigFile()
	check(t, err)
	for was, is := range map[string]string{
		"USER 65532:65532":              "USER nonroot",
		"EXPOSE 8080 ":                  "EXPOSE 80 ",
		`ENTRYPOINT ["/bin/ratelimit"]`: `ENTRYPOINT ["/bin/sluice"]`,
		"WORKDIR /\n":                   "WORKDIR /tmp\n",
		"image.licenses=":               "image.license=",
		`"$REVISION" \`:                 `"$VERSION" \`,
		"COPY --from=build /image/ /":   "COPY --from=build /image/bin /bin",
		"FROM scratch":                  "FROM scratch\nENV A=b",
	} {
		planted := strings.Replace(string(text), was, is, 1)
		if planted == string(text) {
			t.Errorf("the Dockerfile has no %q", was)
		}
		if why := differences(t, planted, file.Config); len(why) == 0 {
			t.Errorf("%q instead of %q is not found", is, was)
		}
	}
}

var label = regexp.MustCompile(`(org\.opencontainers\.image\.[a-z]+)="([^"]*)"`)

// differences says where the last stage of a Dockerfile makes another image than
// config does.
func differences(t *testing.T, dockerfile string, config v1.Config) (why []string) {
	t.Helper()
	_, stage, found := strings.Cut(dockerfile, "\nFROM scratch\n")
	if !found {
		return []string{"no stage begins FROM scratch"}
	}
	ports := make([]string, 0, len(config.ExposedPorts))
	for port := range config.ExposedPorts {
		ports = append(ports, strings.TrimSuffix(port, "/tcp"))
	}
	slices.Sort(ports)
	entrypoint, err := json.Marshal(config.Entrypoint)
	check(t, err)
	want := map[string]string{
		"USER":       config.User,
		"WORKDIR":    config.WorkingDir,
		"EXPOSE":     strings.Join(ports, " "),
		"ENTRYPOINT": string(entrypoint),
		"COPY":       "--from=build /image/ /",
	}
	stage = strings.ReplaceAll(stage, "\\\n", "")
	for line := range strings.Lines(stage) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch wanted, ok := want[instruction]; {
		case instruction == "" || strings.HasPrefix(instruction, "#") || instruction == "ARG":
		case instruction == "LABEL":
			why = append(why, labelDifferences(rest, config.Labels)...)
			delete(want, instruction)
		case !ok:
			why = append(why, instruction+" is not what make image does")
		case rest != wanted:
			why = append(why, instruction+" is "+rest+": make image has "+wanted)
			fallthrough
		default:
			delete(want, instruction)
		}
	}
	for instruction := range want {
		why = append(why, instruction+" is missing")
	}
	return why
}

func labelDifferences(line string, want map[string]string) (why []string) {
	seen := map[string]string{}
	for _, m := range label.FindAllStringSubmatch(line, -1) {
		seen[m[1]] = strings.NewReplacer("$VERSION", "v1.2.3", "$REVISION", "c0ffee", "$COMMIT_DATE", committed).Replace(m[2])
	}
	for name, value := range want {
		if seen[name] != value {
			why = append(why, "the label "+name+" is "+seen[name]+": make image has "+value)
		}
		delete(seen, name)
	}
	for name := range seen {
		why = append(why, "make image has no label "+name)
	}
	return why
}

// TestGoVersions holds the Go that the Dockerfile pins against what go.mod needs.
func TestGoVersions(t *testing.T) {
	text, err := os.ReadFile(source + "/Dockerfile")
	check(t, err)
	pinned := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\d+\.\d+)\.\d+$`).FindSubmatch(text)
	mod, err := os.ReadFile(source + "/go.mod")
	check(t, err)
	needed := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.\d+$`).FindSubmatch(mod)
	if pinned == nil || needed == nil || string(pinned[1]) != string(needed[1]) {
		t.Errorf("the Dockerfile builds with Go %s, go.mod wants %s", pinned, needed)
	}
}

// TestDockerignoreLetsSourcesPass holds that the builder gets all that sluice is
// built from.
func TestDockerignoreLetsSourcesPass(t *testing.T) {
	text, err := os.ReadFile(source + "/.dockerignore")
	check(t, err)
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/sluice")
	list.Dir = source
	out, err := list.Output()
	check(t, err)
	wanted := []string{"go.mod", "go.sum", "Makefile", "LICENSE", "tools"}
	for line := range strings.Lines(string(out)) {
		if within, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSuffix(mainPackage, "cmd/sluice")); ok {
			folder, _, _ := strings.Cut(within, "/")
			wanted = append(wanted, folder)
		}
	}
	for _, name := range wanted {
		if !strings.Contains(string(text), "\n!"+name+"\n") {
			t.Errorf(".dockerignore keeps %s from the builder", name)
		}
	}
}

// TestPage holds that docs/image.md names every file, port and label.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(source + "/docs/image.md")
	check(t, err)
	config, err := only(t, readLayout(t, built)).ConfigFile()
	check(t, err)
	var names []string
	for port := range config.Config.ExposedPorts {
		names = append(names, "| "+strings.TrimSuffix(port, "/tcp")+" |")
	}
	for label := range config.Config.Labels {
		names = append(names, "`"+strings.TrimPrefix(label, "org.opencontainers.image.")+"`")
	}
	layers, err := contents(release{version: "v1.2.3"}, mustRead(t), source)
	check(t, err)
	for _, tree := range layers {
		for path := range tree {
			if strings.HasPrefix(path, "usr/share/licenses/") {
				path = "usr/share/licenses/"
			}
			names = append(names, "`/"+path+"`")
		}
	}
	names = append(names, config.Config.User, "**The default command is `"+config.Config.Entrypoint[0]+"`**")
	for _, name := range names {
		if !strings.Contains(string(text), name) {
			t.Errorf("docs/image.md does not have %s", name)
		}
	}
}
