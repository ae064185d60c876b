// Package jsonview reads JSON as views of its bytes: nothing is copied but strings with
// escapes, and nothing is built of what nobody wants.
//
// It looks at quotes and brackets, not at the spelling of literals that are skipped: a number
// that nobody wants may be misspelt. Text may be nested as deep as [Scanner].Deepest.
package jsonview
