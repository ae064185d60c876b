package blocks_test

import (
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}
