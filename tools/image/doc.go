// Command image puts sluice's container image together, without a daemon and
// without root: an OCI layout with one image for each platform, and for each a tar
// that docker load and podman load read. With -release it writes what else a release
// has: archives of the programs, the Helm chart and checksums.
//
//	image -version v1.2.3 -out dist dist/sluice-linux-amd64 dist/sluice-linux-arm64
//	image -version v1.2.3 -out dist -release dist/sluice-linux-amd64 dist/sluice-linux-arm64 dist/sluice-darwin-arm64
//
// What it writes depends only on the programs, the flags and the modules that go.sum
// pins. So the same commit gives the same digest on any machine.
//
// The image starts from nothing. It has the program under two names, the
// certificate authorities that Mozilla trusts, two lines of users, what the program
// is made of and under which licences. With -root it writes these files to a
// directory instead, which is what the Dockerfile copies.
package main
