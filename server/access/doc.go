// Package access authenticates and authorizes clients. It provides TLS whose files are reloaded
// when they change, and allow lists: the domains that a client may request, by the names in its
// certificate. For the debug listener it provides tokens and rights.
//
// A client is authorized in the handshake of its connection, so a request only costs a lookup in a
// set.
//
// [TLS] reads certificate, key and authorities once a second. It activates a change when two
// consecutive readings agree, so that it uses neither half a file nor a new certificate with the
// old key. If files cannot be used, this is counted and logged, and the previous files stay active.
// Open connections stay open. Sessions are not resumed, because that would skip the check of the
// certificate.
//
// With an allow list, the handshake reads the DNS names and URIs of the client's certificate, and
// the connection stores the set of permitted domains. Connections without an identity are denied. A
// * in a certificate is an ordinary character; in the list it may only be the last segment of a
// URI.
package access
