//go:build !limiterhooks

package builtin

// ownership checks the owners of calls in tests with the build tag limiterhooks; see
// ownership_on.go. Otherwise it does nothing.
type ownership struct{}

func (ownership) transfer(_, _ owner) {}

func (*rateLimitCall) poison() {}
