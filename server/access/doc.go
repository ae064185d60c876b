// Package access says who may ask: TLS whose files are read again when they change, clients told apart by the
// names in their certificates, and the list of the domains that each client may ask for. For the debug listener
// it has tokens, and the rights that these and certificates give.
//
// For requests the work is done in a connection's handshake. What is left for a request is one look into a set.
//
// [TLS] reads certificate, key and authorities once a second and uses a change when two readings agree, so neither half
// a file nor a new certificate with the old key is used. Files that cannot be used are counted and logged, and the old
// ones stay. Open connections stay; sessions are not resumed, because that would skip the check of the certificate.
//
// With an allow list the handshake reads the DNS names and URIs of the client's certificate once, and the connection
// keeps the set of permitted domains. A connection without an identity is denied. A * in a certificate is an ordinary
// character; in the list it may only be the last segment of a URI.
package access
