package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// sbomPath is the path of the SBOM in the image. Scanners look for *.spdx.json anywhere.
const sbomPath = "usr/share/sbom/sluice.spdx.json"

// sbom returns an SPDX 2.3 document of the components of p's image: the image contains sluice and
// the certificate authorities, and sluice depends on its modules and on Go's standard library. If
// inImage is false, it describes only p.
func sbom(r release, p *program, all []component, inImage bool) ([]byte, error) {
	digest := sha256.Sum256(p.content)
	checksum := hex.EncodeToString(digest[:])
	name := "sluice-" + r.version + "-" + dashed(p.platform)
	document := &v2_3.Document{
		SPDXVersion:    v2_3.Version,
		DataLicense:    v2_3.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   name,
		// The namespace is only an identifier, which need not exist as a page. It is unique per
		// program.
		DocumentNamespace: home + "/spdx/" + url.PathEscape(name) + "-" + checksum,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "sluice-tools-image"}},
			Created:  r.created().Format(time.RFC3339),
		},
	}
	image := entry(component{path: "sluice-image", version: r.version, licence: licence}, "CONTAINER")
	image.PackageExternalReferences = nil // not a Go module
	program := entry(component{path: strings.TrimPrefix(home, "https://"), version: r.version, licence: licence}, "APPLICATION")
	program.PackageFileName = "/" + programPath
	program.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: checksum}}
	if r.revision != "" {
		program.PackageDownloadLocation = "git+" + home + ".git@" + r.revision
	}
	relate := func(a common.ElementID, relationship string, b common.ElementID) {
		document.Relationships = append(document.Relationships, &v2_3.Relationship{
			RefA: common.DocElementID{ElementRefID: a}, RefB: common.DocElementID{ElementRefID: b}, Relationship: relationship,
		})
	}
	if inImage {
		document.Packages = append(document.Packages, image)
		relate(document.SPDXIdentifier, common.TypeRelationshipDescribe, image.PackageSPDXIdentifier)
		relate(image.PackageSPDXIdentifier, common.TypeRelationshipContains, program.PackageSPDXIdentifier)
	} else {
		relate(document.SPDXIdentifier, common.TypeRelationshipDescribe, program.PackageSPDXIdentifier)
	}
	document.Packages = append(document.Packages, program)
	for _, c := range all {
		e := entry(c, "LIBRARY")
		document.Packages = append(document.Packages, e)
		if c.path == authoritiesModule {
			e.PackageFileName = "/" + authoritiesPath
			relate(image.PackageSPDXIdentifier, common.TypeRelationshipContains, e.PackageSPDXIdentifier)
			continue
		}
		relate(program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, e.PackageSPDXIdentifier)
	}
	var b bytes.Buffer
	if err := spdxjson.Write(document, &b, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// invalidID matches the characters that SPDX does not allow in an identifier.
var invalidID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// entry returns the SPDX package of a component.
func entry(c component, purpose string) *v2_3.Package {
	return &v2_3.Package{
		PackageName:             c.path,
		PackageSPDXIdentifier:   common.ElementID("Package-" + invalidID.ReplaceAllString(c.path, "-")),
		PackageVersion:          c.version,
		PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: c.licence,
		PackageLicenseDeclared:  c.licence,
		PackageCopyrightText:    "NOASSERTION",
		PrimaryPackagePurpose:   purpose,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  purl(c.path, c.version),
		}},
	}
}

// purl returns the package URL of a Go module. Package URLs of Go modules are in lower case.
func purl(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
}
