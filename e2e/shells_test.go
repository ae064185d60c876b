package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// shells are programs that print the completion of each line in $TYPED, using the script $SCRIPT.
var shells = map[string]string{
	"bash": `source "$SCRIPT"
while IFS= read -r COMP_LINE; do
	COMP_POINT=${#COMP_LINE}
	_sluice
	printf '%s: ' "$COMP_LINE"; printf '%s ' "${COMPREPLY[@]}"; echo
done <<<"$TYPED"`,
	"fish": `source "$SCRIPT"
for line in (string split \n -- "$TYPED")
	echo "$line:" (complete -C "$line" | string replace -r '\t.*' '')" "
end`,
	// zsh only completes typed input, so the script replaces its completion functions.
	"zsh": `compdef() { }
source "$SCRIPT"
_describe() { local -a all=("${(@P)4}"); print -rn -- "${(@)all%%:*} " }
_files() { print -rn -- "${PREFIX}"*(N) "" }
compset() { PREFIX=${words[CURRENT]#--*=} }
while IFS= read -r line; do
	words=("${(@s: :)line}")
	CURRENT=$#words PREFIX=$words[-1]
	print -rn -- "$line: "
	_sluice
	print
done <<<"$TYPED"`,
}

// TestShells completes lines in real shells.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": "",
		"rules.txt":  "",
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	lines := []string{
		"sluice exp", "sluice schema d", "sluice check rul",
		"sluice serve --log-l", "sluice check --output=j",
	}
	// Shells differ in the replaced part of a word: bash replaces the text after an equals sign.
	want := map[string]string{
		"sluice exp": "explain", "sluice schema d": "defaults", "sluice check rul": "rules.txt rules.yaml",
		"sluice serve --log-l":    "--log-level",
		"sluice check --output=j": "--output=json",
	}
	for shell, program := range shells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				suite.Skip(t, shell+" is not installed")
			}
			script := filepath.Join(dir, "script."+shell)
			text, err := exec.CommandContext(t.Context(), programs.sluice, "completion", shell).Output()
			must.OK(t, err)
			must.OK(t, os.WriteFile(script, text, 0o600))
			cmd := exec.CommandContext(t.Context(), shell, "-c", program)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(programs.sluice)+":"+os.Getenv("PATH"), "HOME="+dir, "SCRIPT="+script, "TYPED="+strings.Join(lines, "\n"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			completed := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if len(completed) != len(lines) {
				t.Fatalf("want one line per completion:\n%s", out)
			}
			for i, got := range completed {
				expected := want[lines[i]]
				if shell == "bash" {
					expected = strings.TrimPrefix(expected, "--output=")
				}
				got = strings.Join(strings.Fields(strings.TrimPrefix(got, lines[i]+": ")), " ")
				if got != expected {
					t.Errorf("%q was completed to %q, want %q", lines[i], got, expected)
				}
			}
		})
	}
}

// TestManual formats the manual page.
func TestManual(t *testing.T) {
	page, err := exec.CommandContext(t.Context(), programs.sluice, "man").Output()
	must.OK(t, err)
	for _, want := range []string{`.TH "SLUICE" "1"`, `.SS "sluice check `, `\-\-counter\-memory=SIZE`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("missing %s", want)
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		suite.Skip(t, "groff is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "groff", "-man", "-Tutf8", "-ww")
	cmd.Stdin = strings.NewReader(string(page))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if text, err := cmd.Output(); err != nil || complaints.Len() > 0 || !strings.Contains(string(text), "EXIT") && !strings.Contains(string(text), "E\bEX") {
		t.Errorf("groff: %v: %s", err, complaints.String())
	}
}
