// Package source reads rules from files and activates them, at the start and whenever they change.
// Its state machine for that, [Reload], serves other sources, too.
//
// [Load] reads files once. [Files] follows them, and a [Group] follows them together with the files
// of tables, so that both change in one step. Files are read when their names, sizes or times have
// changed, and every ten seconds; only contents determine whether they changed. The file system's
// notifications are not used, since they come late or never on some. A change is applied once two
// readings agree, since a single one may read a file that is being written. So a start may wait for
// unfinished files; it reports that at once, and then once a second.
//
// Files that a [Group] read twice without a change existed at one time between the readings. So
// rules and tables that change together become active together, or wait together if one of them
// cannot be loaded. In a ConfigMap volume the link ..data is read before and after the files, so
// that all are of one version. A writer that dies at the end of a line leaves a file that looks
// complete: outside of a ConfigMap, write to another file and rename it.
package source
