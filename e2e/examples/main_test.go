package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

const patience = suite.Patience

// sluiceDir is the directory of the sluice that TestMain built.
var sluiceDir, sluiceBinary string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" { // see linkCurl
		if err := curl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "curl:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(suite.Main(m, root, func(binary, dir string) {
		sluiceBinary, sluiceDir = binary, dir
		if _, err := exec.LookPath("curl"); err != nil {
			// dir is the first directory in PATH. If linking fails, the commands report that curl
			// is missing.
			if _, err := linkCurl(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}))
}
