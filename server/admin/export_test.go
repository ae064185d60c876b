package admin

// PageText is the template of the page, and DebugIndex the list of pages.
var PageText, DebugIndex = pageText, debugIndex
