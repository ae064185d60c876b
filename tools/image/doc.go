// Command image builds sluice's container image, without a daemon and without root: an OCI layout
// with an image per platform, and for each platform a tar for docker load and podman load. With
// -release it writes the other files of a release: archives of the programs, the Helm chart,
// checksums and provenance, signed with the key in SLUICE_RELEASE_KEY.
//
//	image -version v1.2.3 -out dist dist/sluice-linux-amd64 dist/sluice-linux-arm64
//	image -version v1.2.3 -out dist -release dist/sluice-linux-amd64 dist/sluice-linux-arm64 dist/sluice-darwin-arm64
//
// The output depends only on the programs, the flags and the modules pinned by go.sum. So the same
// commit has the same digest on any machine.
//
// The image has no base image. It contains the program under two names, Mozilla's certificate
// authorities, /etc/passwd, /etc/group, the SBOM and the licences. With -root it writes these files
// to a directory instead, for the Dockerfile.
package main
