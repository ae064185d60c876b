// Package top shows the live state of running services, once as text or on a terminal until the
// user quits.
package top
