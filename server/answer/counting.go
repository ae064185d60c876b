//go:build !uncounted

package answer

// countingEnabled is false in builds with the tag uncounted, which measure the cost of counting.
const countingEnabled = true
