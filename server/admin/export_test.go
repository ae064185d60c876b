package admin

// DebugIndex is the list of pages.
const DebugIndex = debugIndex
