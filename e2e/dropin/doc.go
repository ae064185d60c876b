// Package dropin tests that sluice stands in for envoyproxy/ratelimit: it starts
// the image's program by the environments that others write for that, as the user
// and with the file system that they give it.
package dropin
