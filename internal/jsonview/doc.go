// Package jsonview reads JSON without copying: values are slices of the input, except for strings
// with escapes.
//
// It checks quotes and brackets, but not the spelling of literals, so an invalid number can be
// skipped. [Scanner].MaxDepth bounds the nesting.
package jsonview
