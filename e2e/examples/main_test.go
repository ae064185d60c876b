package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// root is the repository's root, seen from here.
const root = "../.."

const patience = suite.Patience

// sluiceDir holds the sluice that TestMain built for all tests.
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
			// Commands look into dir first. If linking fails they say that there is no
			// curl.
			if _, err := linkCurl(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}))
}
