//go:build !uncounted

package answer

// counting says whether requests are counted. Only a build with the tag uncounted does not count.
// It is for measuring what counting costs.
const counting = true
