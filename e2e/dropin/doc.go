// Package dropin tests that sluice stands in for envoyproxy/ratelimit. It starts the
// image's program with the environments, users and file systems of others' manifests.
package dropin
