package environment

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// memcacheRemedy is why memcached cannot be the store.
const memcacheRemedy = `memcached runs no scripts, so that no decision would be atomic. Name a Redis (6.2 or later) or Valkey by
REDIS_URL or --store (docs/store.md), or set BACKEND_TYPE=memory to count in this process's memory (docs/algorithms.md,
"Replicas and restarts")`

// assignStore says where counters are. Without BACKEND_TYPE it is Redis if REDIS_URL names one, else memory.
// What names a store that is not used ends the start: limits would silently be those of each replica.
func (e *Environment) assignStore() {
	var named []string
	for _, name := range []string{"REDIS_PERSECOND_URL", "MEMCACHE_HOST_PORT", "MEMCACHE_SRV"} {
		if e.anySet(name) {
			named = append(named, name)
		}
	}
	if e.isTrue("REDIS_PERSECOND") {
		named = append([]string{"REDIS_PERSECOND"}, named...)
	}
	switch backend := e.set["BACKEND_TYPE"]; {
	case e.given["store"]:
		const why = "--store says where counters are"
		e.markUnused(why, "BACKEND_TYPE")
		e.markStoreUnused(why)
	case backend == "memory":
		e.markStoreUnused(reasonInMemory)
	case backend == "memcache":
		e.addProblem("BACKEND_TYPE=memcache: %s", memcacheRemedy)
	case backend == "redis", e.anySet("REDIS_URL"):
		e.assignRedis()
	case len(named) > 0:
		e.addProblem(`%s: without BACKEND_TYPE and REDIS_URL counters are in this process's memory: N replicas admit up to N times each limit.
Set BACKEND_TYPE=memory if that is meant: with one replica, with limits divided by the number of replicas, or where Envoy
sends each key to one replica (docs/algorithms.md, "Replicas and restarts"). Or name the store with REDIS_URL`, strings.Join(named, ", "))
	default:
		e.markStoreUnused("REDIS_URL is not set: " + reasonInMemory)
	}
}

// markStoreUnused notes that the variables of a store have no effect, for those that say something.
func (e *Environment) markStoreUnused(why string) {
	for v := range All() {
		if v.isStoreVariable() && e.set[v.Name] != v.preset {
			e.markUnused(why, v.Name)
		}
	}
}

// isStoreVariable reports whether v says something of a store.
func (v *Variable) isStoreVariable() bool {
	return strings.HasPrefix(v.Name, "REDIS_") && !v.has(neverRead) || strings.HasPrefix(v.Name, "MEMCACHE_") ||
		slices.Contains([]string{"CACHE_KEY_PREFIX", "EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES"}, v.Name)
}

// assignRedis names the store that envoyproxy/ratelimit would use, and has counters named as there, so that
// both count together.
func (e *Environment) assignRedis() {
	for v := range All() {
		if strings.HasPrefix(v.Name, "MEMCACHE_") && e.set[v.Name] != v.preset {
			e.markUnused("BACKEND_TYPE is not memcache", v.Name)
		}
	}
	e.assignServer("REDIS_", "store", "BACKEND_TYPE")
	if e.isTrue("REDIS_PERSECOND") {
		e.assignServer("REDIS_PERSECOND_", "store-per-second", "REDIS_PERSECOND")
		if name := "REDIS_PERSECOND_TIMEOUT"; e.anySet(name) {
			e.setFlag("store-per-second-dial-timeout", e.set[name], name)
		}
	} else {
		for _, name := range []string{"URL", "TYPE", "SOCKET_TYPE", "AUTH", "AUTH_FILE", "TLS", "SENTINEL_AUTH", "TIMEOUT"} {
			if v := lookup("REDIS_PERSECOND_" + name); e.set[v.Name] != v.preset {
				e.markUnused("REDIS_PERSECOND is not true", v.Name)
			}
		}
	}
	e.setFlag("store-names", "ratelimit")
	if name := "CACHE_KEY_PREFIX"; e.anySet(name) {
		e.setFlag("store-prefix", e.set[name], name)
	}
	if name := "REDIS_TIMEOUT"; e.anySet(name) {
		e.setFlag("store-dial-timeout", e.set[name], name)
		e.setFlag("store-timeout", e.set[name], name)
	}
	if name := "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"; e.isTrue(name) {
		e.setFlag("unhealthy-without-store", e.set[name], name)
	}
	if seconds, err := strconv.ParseInt(e.set["EXPIRATION_JITTER_MAX_SECONDS"], 0, 64); err == nil {
		e.setFlag("store-jitter", strconv.FormatInt(max(0, seconds), 10)+"s", "EXPIRATION_JITTER_MAX_SECONDS")
	}
	e.assignRedisTLS()
}

// assignServer sets a flag to the server that the variables of that prefix name, and those of its
// passwords. Another variable says that there is one.
func (e *Environment) assignServer(prefix, flag, because string) {
	e.setFlag(flag, e.redisURL(prefix), because, prefix+"URL", prefix+"TYPE", prefix+"SOCKET_TYPE", prefix+"TLS")
	e.assignAuth(prefix, flag)
	if name := prefix + "SENTINEL_AUTH"; !strings.EqualFold(e.set[prefix+"TYPE"], "sentinel") {
		e.markUnused(prefix+"TYPE is not SENTINEL", name)
	} else if e.anySet(name) {
		e.setFlag(flag+"-sentinel-auth", e.set[name], name)
	}
}

// assignAuth sets the flags of a server's password, of which there may be one.
func (e *Environment) assignAuth(prefix, flag string) {
	text, file := prefix+"AUTH", prefix+"AUTH_FILE"
	switch {
	case e.anySet(text) && e.anySet(file):
		e.addProblem("%s=%s: %s is set too, so the password is unclear: unset one of them", file, lookup(file).display(e.set[file]), text)
	case e.anySet(text):
		e.setFlag(flag+"-auth", e.set[text], text)
	case e.anySet(file):
		e.setFlag(flag+"-auth-file", e.set[file], file)
	}
}

// assignRedisTLS sets the flags of files, which are those of both stores.
func (e *Environment) assignRedisTLS() {
	for name, flag := range map[string]string{
		"REDIS_TLS_CACERT": "store-ca", "REDIS_TLS_CLIENT_CERT": "store-cert", "REDIS_TLS_CLIENT_KEY": "store-key",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "store-skip-name",
	} {
		switch {
		case !e.isTrue("REDIS_TLS") && (!e.isTrue("REDIS_PERSECOND") || !e.isTrue("REDIS_PERSECOND_TLS")):
			e.markUnused("REDIS_TLS is not true", name)
		case e.anySet(name):
			e.setFlag(flag, e.set[name], name)
		}
	}
}

// redisURL returns what the variables of that prefix name, as --store has it.
func (e *Environment) redisURL(prefix string) string {
	v := lookup(prefix + "URL")
	text := e.valueOr(v.Name, v.preset)
	scheme := "redis"
	if e.isTrue(prefix + "TLS") {
		scheme = "rediss"
	}
	kind := e.valueOr(prefix+"TYPE", "single")
	switch strings.ToLower(kind) {
	case "single":
		if strings.Contains(text, ",") {
			e.addProblem("%s=%s: several addresses need %sTYPE to be SENTINEL or CLUSTER", v.Name, v.display(text), prefix)
		}
		return e.singleURL(prefix, scheme, v, text)
	case "sentinel":
		master, addresses, found := strings.Cut(text, ",")
		if !found || strings.ContainsAny(master, ":/") {
			e.addProblem("%s=%s: must be the primary's name and Sentinels, name,host:port,host:port, since %sTYPE is %s", v.Name, v.display(text), prefix, kind)
		}
		return scheme + "+sentinel://" + e.addresses(v, addresses) + "/" + master
	case "cluster":
		return scheme + "+cluster://" + e.addresses(v, text)
	default:
		e.addProblem("%sTYPE=%q: must be SINGLE, SENTINEL or CLUSTER", prefix, kind)
		return ""
	}
}

// addresses returns the hosts and ports of several servers, which may be URLs there.
func (e *Environment) addresses(v *Variable, text string) string {
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimPrefix(strings.TrimSpace(all[i]), "redis://")
		if strings.ContainsAny(all[i], "@/") {
			e.addProblem("%s=%s: each of several addresses must be host:port; a password is in %sAUTH, that of Sentinels in %[3]sSENTINEL_AUTH",
				v.Name, v.display(text), strings.TrimSuffix(v.Name, "URL"))
			return ""
		}
	}
	return strings.Join(all, ",")
}

// singleURL is redisURL for one server.
func (e *Environment) singleURL(prefix, scheme string, v *Variable, text string) string {
	if before, rest, found := strings.Cut(text, "://"); found {
		if before != "redis" {
			e.addProblem("%s=%s: must be host:port, redis://user:password@host:port/database or the path of a unix socket", v.Name, v.display(text))
		}
		return scheme + "://" + rest
	}
	socket := prefix + "SOCKET_TYPE"
	unix := strings.HasPrefix(text, "/")
	switch network := e.set[socket]; {
	case network == "tcp" && unix, network != "" && network != "tcp" && network != "unix":
		e.addProblem("%s=%q: must be %s for that %s", socket, network, map[bool]string{true: "unix", false: "tcp"}[unix], v.Name)
	case network == "unix":
		unix = true
	}
	if !unix {
		return scheme + "://" + text
	}
	if scheme == "rediss" {
		e.addProblem("%sTLS=true: a unix socket has no TLS; %s must be host:port", prefix, v.Name)
	}
	path, err := filepath.Abs(text)
	if err != nil {
		e.addProblem("%s: %w", v.Name, err)
	}
	return "unix://" + path
}
