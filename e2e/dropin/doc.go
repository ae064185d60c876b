// Package dropin tests that sluice can replace envoyproxy/ratelimit. It starts the image with the
// environments, users and file systems of third-party manifests.
package dropin
