// Package source reads rules from files and puts them in force, now and whenever they
// change. Its state machine for that, [Reload], serves other sources too.
//
// [Load] reads files once. [Files] follow them, and a [Group] follows them together with the
// files of tables, so that both change in one step. The contents alone decide which files are
// in force. Notifications of the file system are hints to read sooner, and a slow poll is
// the safety net. A change is taken once two readings agree. Otherwise a file would be
// taken while its writer is still at work. So a start may wait for files that are unfinished; it
// reports at once, and then once a second, what it waits for.
package source
