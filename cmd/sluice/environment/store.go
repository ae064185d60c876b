package environment

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// memcacheRemedy is the error for memcached, which cannot be the store.
const memcacheRemedy = `memcached runs no scripts, so decisions would not be atomic. Set REDIS_URL or --store to a Redis
(6.2 or later) or Valkey (docs/store.md), or set BACKEND_TYPE=memory to count in the memory of this process
(docs/algorithms.md, "Replicas and restarts")`

// assignStore selects the store of counters. Without BACKEND_TYPE it is Redis if REDIS_URL is set,
// and otherwise memory. Variables of a store that would not be used are an error, because each
// replica would silently apply the limits alone.
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
		const why = "--store sets the store of counters"
		e.markUnused(why, "BACKEND_TYPE")
		e.assignGivenPerSecond()
		e.assignOwn("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")
		e.assignTimes()
		e.markStoreUnused(why)
	case backend == "memory":
		e.markStoreUnused(reasonInMemory)
	case backend == "memcache":
		e.addProblem("BACKEND_TYPE=memcache: %s", memcacheRemedy)
	case backend == "redis", e.anySet("REDIS_URL"):
		e.assignRedis()
	case len(named) > 0:
		e.addProblem(`%s: without BACKEND_TYPE and REDIS_URL counters are in the memory of each process, and N replicas admit up to N times each limit.
Set BACKEND_TYPE=memory if this is intended: with one replica, with limits divided by the number of replicas, or if Envoy
sends each key to one replica (docs/algorithms.md, "Replicas and restarts"). Otherwise set REDIS_URL`,
			strings.Join(named, ", "))
	default:
		e.markStoreUnused("REDIS_URL is not set: " + reasonInMemory)
	}
}

// markStoreUnused records that the variables of a store have no effect, for those that are not
// assigned and differ from their defaults.
func (e *Environment) markStoreUnused(why string) {
	for v := range All() {
		if _, assigned := e.assigned[v.Name]; v.isStoreVariable() && !assigned && e.set[v.Name] != v.preset {
			e.markUnused(why, v.Name)
		}
	}
}

func (v *Variable) isStoreVariable() bool {
	return strings.HasPrefix(v.Name, "REDIS_") && !v.has(neverRead) || strings.HasPrefix(v.Name, "MEMCACHE_") ||
		slices.Contains([]string{"CACHE_KEY_PREFIX", "EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES"},
			v.Name)
}

// assignRedis selects the store that envoyproxy/ratelimit would use, and its names of counters, so
// that both programs share them.
func (e *Environment) assignRedis() {
	for v := range All() {
		if strings.HasPrefix(v.Name, "MEMCACHE_") && e.set[v.Name] != v.preset {
			e.markUnused("BACKEND_TYPE is not memcache", v.Name)
		}
	}
	e.assignServer("REDIS_", "store", "BACKEND_TYPE")
	if e.isTrue("REDIS_PERSECOND") {
		e.assignServer("REDIS_PERSECOND_", "store-per-second", "REDIS_PERSECOND")
		e.assignOwn("REDIS_PERSECOND_TIMEOUT")
	} else {
		e.assignGivenPerSecond()
		for _, name := range []string{
			"URL", "TYPE", "SOCKET_TYPE", "AUTH", "AUTH_FILE", "TLS", "SENTINEL_AUTH", "TIMEOUT",
		} {
			v := lookup("REDIS_PERSECOND_" + name)
			if _, assigned := e.assigned[v.Name]; !assigned && e.set[v.Name] != v.preset {
				e.markUnused("REDIS_PERSECOND is not true", v.Name)
			}
		}
	}
	e.setFlag("store-names", "ratelimit")
	if name := "CACHE_KEY_PREFIX"; e.anySet(name) {
		e.setFlag("store-prefix", e.set[name], name)
	}
	e.assignTimes()
	if name := "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"; e.isTrue(name) {
		e.setFlag("unhealthy-without-store", e.set[name], name)
	}
	e.assignRedisTLS()
}

// assignGivenPerSecond assigns the variables that apply to the server of --store-per-second.
func (e *Environment) assignGivenPerSecond() {
	if e.given["store-per-second"] {
		e.assignAuth("REDIS_PERSECOND_")
		e.assignOwn("REDIS_PERSECOND_SENTINEL_AUTH")
		e.assignOwn("REDIS_PERSECOND_TIMEOUT")
	}
}

// assignTimes assigns the times that also apply to the server of --store.
func (e *Environment) assignTimes() {
	const timeout, jitter = "REDIS_TIMEOUT", "EXPIRATION_JITTER_MAX_SECONDS"
	if e.anySet(timeout) {
		e.assignOwn(timeout)
		e.setFlag("store-timeout", e.set[timeout], timeout)
	}
	if seconds, err := strconv.ParseInt(e.set[jitter], 0, 64); err == nil {
		e.setFlag(jitter, strconv.FormatInt(max(0, seconds), 10)+"s", jitter)
	}
}

// assignOwn assigns a variable without a flag, if it is set.
func (e *Environment) assignOwn(name string) {
	if e.anySet(name) {
		e.setFlag(name, e.set[name], name)
	}
}

// assignServer sets a flag to the server that the variables with the prefix name, and the flags of
// its passwords. Enabled is the variable that enables the server.
func (e *Environment) assignServer(prefix, flag, enabled string) {
	e.setFlag(flag, e.redisURL(prefix), enabled, prefix+"URL", prefix+"TYPE", prefix+"SOCKET_TYPE", prefix+"TLS")
	e.assignAuth(prefix)
	if name := prefix + "SENTINEL_AUTH"; !strings.EqualFold(e.set[prefix+"TYPE"], "sentinel") {
		e.markUnused(prefix+"TYPE is not SENTINEL", name)
	} else {
		e.assignOwn(name)
	}
}

// assignAuth assigns the password of a server, or its file.
func (e *Environment) assignAuth(prefix string) {
	text := prefix + "AUTH"
	file := prefix + "AUTH_FILE"
	switch {
	case e.anySet(text) && e.anySet(file):
		e.addProblem("%s=%s: %s is set too: unset one of them", file, lookup(file).display(e.set[file]), text)
	case e.anySet(file):
		e.setFlag(lookup(file).Flag, e.set[file], file)
	default:
		e.assignOwn(text)
	}
}

// assignRedisTLS sets the flags of TLS files, which both stores share.
func (e *Environment) assignRedisTLS() {
	usesTLS := e.isTrue("REDIS_TLS") || e.isTrue("REDIS_PERSECOND") && e.isTrue("REDIS_PERSECOND_TLS")
	for name, flag := range map[string]string{
		"REDIS_TLS_CACERT": "store-ca", "REDIS_TLS_CLIENT_CERT": "store-cert", "REDIS_TLS_CLIENT_KEY": "store-key",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
	} {
		switch {
		case !usesTLS:
			e.markUnused("REDIS_TLS is not true", name)
		case e.anySet(name):
			e.setFlag(flag, e.set[name], name)
		}
	}
}

// redisURL returns the URL of the store that the variables with the prefix name, in the format of
// --store.
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
			e.addProblem("%s=%s: several addresses need %sTYPE to be SENTINEL or CLUSTER", v.Name, v.display(text),
				prefix)
		}
		return e.singleURL(prefix, scheme, v, text)
	case "sentinel":
		master, addresses, found := strings.Cut(text, ",")
		if !found || strings.ContainsAny(master, ":/") {
			e.addProblem("%s=%s: must be name,host:port,host:port, the name of the primary and the Sentinels, because %sTYPE is %s", v.Name, v.display(text), prefix, kind)
		}
		return scheme + "+sentinel://" + e.addresses(v, addresses) + "/" + master
	case "cluster":
		return scheme + "+cluster://" + e.addresses(v, text)
	default:
		e.addProblem("%sTYPE=%q: must be SINGLE, SENTINEL or CLUSTER", prefix, kind)
		return ""
	}
}

// addresses returns the addresses of several servers. envoyproxy/ratelimit also accepts URLs.
func (e *Environment) addresses(v *Variable, text string) string {
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimPrefix(strings.TrimSpace(all[i]), "redis://")
		if strings.ContainsAny(all[i], "@/") {
			e.addProblem("%s=%s: each address must be host:port; set the password with %sAUTH, and that of Sentinels with %[3]sSENTINEL_AUTH",
				v.Name, v.display(text), strings.TrimSuffix(v.Name, "URL"))
			return ""
		}
	}
	return strings.Join(all, ",")
}

func (e *Environment) singleURL(prefix, scheme string, v *Variable, text string) string {
	if before, rest, found := strings.Cut(text, "://"); found {
		if before != "redis" {
			e.addProblem("%s=%s: must be host:port, redis://user:password@host:port/database or the path of a unix socket", v.Name, v.display(text))
		}
		return scheme + "://" + rest
	}
	socket := prefix + "SOCKET_TYPE"
	wanted := "tcp" // the network of an address of this form
	unix := strings.HasPrefix(text, "/")
	if unix {
		wanted = "unix"
	}
	switch network := e.set[socket]; {
	case network == "tcp" && unix, network != "" && network != "tcp" && network != "unix":
		e.addProblem("%s=%q: must be %s for that %s", socket, network, wanted, v.Name)
	case network == "unix":
		unix = true
	}
	if !unix {
		return scheme + "://" + text
	}
	if scheme == "rediss" {
		e.addProblem("%sTLS=true: a Unix socket does not support TLS; %s must be host:port", prefix, v.Name)
	}
	path, err := filepath.Abs(text)
	if err != nil {
		e.addProblem("%s: %w", v.Name, err)
	}
	return "unix://" + path
}
