// Package access says who may ask: TLS whose files are read again when they change, clients told apart by the
// names in their certificates, and the list of the domains that each client may ask for. For the debug listener
// it has tokens, and the rights that these and certificates give.
//
// For requests the work is done in a connection's handshake. What is left for a request is one look into a set.
package access
