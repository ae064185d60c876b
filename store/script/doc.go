// Calls and runs reuse their memory, and belong to one goroutine at a time. Only the Run methods of
// scripts and [AcquireRoles] wait for the server.
package script
