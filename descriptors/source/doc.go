// Package source reads rules from files and puts them in force, now and whenever they
// change. Its state machine for that, [Reload], serves other sources too.
//
// [Load] reads files once. [Files] follow them, and a [Group] follows them together with the
// files of tables, so that both change in one step. The contents alone decide which files are
// in force. Notifications of the file system are hints to read sooner, and a slow poll is
// the safety net. A change is taken once two readings agree. Otherwise a file would be
// taken while its writer is still at work. So a start may wait for files that are unfinished; it
// reports at once, and then once a second, what it waits for.
//
// What a [Group] saw unchanged in two readings existed at one time between them, so rules and tables that change
// together become active together, or wait together if one of them cannot be loaded. In a ConfigMap volume the link
// ..data is read before and after the files, so that all are of one version. A writer that dies at the end of a line
// leaves a file that looks complete: outside of a ConfigMap, write to another file and rename it.
package source
