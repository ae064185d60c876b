// Package ratelimitv3 has the messages of rate limit configuration over xDS. It is generated from
// rls_conf.proto by `make proto`.
package ratelimitv3
