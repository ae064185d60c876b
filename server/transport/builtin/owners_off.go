//go:build !limiterhooks

package builtin

// ownership checks the owners of calls in tests that are built with the tag limiterhooks; see owners_on.go.
// Otherwise it is nothing, and costs nothing.
type ownership struct{}

func (ownership) pass(_, _ owner) {}

func (*rateLimitCall) poison() {}
