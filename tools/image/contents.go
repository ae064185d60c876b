package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// users has names for some IDs. The image also runs as any other user.
const users = `root:x:0:0:root:/:/sbin/nologin
nobody:x:65534:65534:nobody:/:/sbin/nologin
nonroot:x:65532:65532:nonroot:/:/sbin/nologin
`

const groups = `root:x:0:
nogroup:x:65534:
nonroot:x:65532:
`

// contents returns the layers of p's image. The first one is the same in every build, so that
// registries and nodes store it once. Source is the root of the module from which p was built.
func contents(r release, p *program, source string) ([]tree, error) {
	authorities, err := authorities()
	if err != nil {
		return nil, err
	}
	all, err := components(p.info, source)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	bill, err := sbom(r, p, all, true)
	if err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	base := tree{
		"etc/passwd":    {content: []byte(users)},
		"etc/group":     {content: []byte(groups)},
		authoritiesPath: {content: authorities},
	}
	own := tree{
		ratelimitPath: {content: p.content, executable: true},
		programPath:   {linkTo: ratelimitPath, executable: true},
		sbomPath:      {content: bill},

		"usr/share/licenses/sluice/LICENSE": {content: license},
	}
	maps.Copy(own, licenceTexts("usr/share/licenses", all))
	return []tree{base, own}, nil
}
