// Package source brings rules from where they are kept into force, now and whenever
// they change there.
//
// [Load] reads files once. [Files] follow them. Which files are in force is decided by
// their contents alone: notifications of the file system are hints to look sooner, a
// slow poll is the safety net, and a change is taken once two readings agree, so that a
// half-written file is not.
package source
