package redis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// schemes describes the URLs that ParseURL accepts.
const schemes = "redis://host:port/database, unix:///path, redis+sentinel://host:port,host:port/master " +
	"or redis+cluster://host:port,host:port; or rediss, rediss+sentinel or rediss+cluster, with TLS"

// ParseURL parses the URL of a server. Errors do not contain the password.
func ParseURL(text string) (Server, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return Server{}, errors.New("parse the store's URL: no scheme; must be " + schemes)
	}
	hosts := rest
	path := ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		hosts = rest[:slash]
		path = rest[slash:]
	}
	account := ""
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		account = hosts[:at+1]
		hosts = hosts[at+1:]
	}
	if i := strings.IndexAny(hosts, "?#"); i >= 0 {
		hosts, path = hosts[:i], hosts[i:]+path
	}
	list := strings.Split(hosts, ",")
	u, err := url.Parse("redis://" + account + "host" + path)
	// Otherwise the error, the hosts or the fragment could contain a part of the password.
	if err != nil || strings.Contains(path, "@") || strings.ContainsAny(account, "?#") {
		return Server{}, errors.New("parse the store's URL: not a URL; must be " + schemes +
			"; in a user or a password / is %2F, @ is %40, ? is %3F and # is %23")
	}
	shown := scheme + strings.TrimPrefix(strings.Replace(u.Redacted(), "@host", "@"+hosts, 1), "redis")
	if account == "" {
		shown = text
	}
	s, err := parseParts(scheme, list, u)
	if err != nil {
		return Server{}, fmt.Errorf("parse %s: %w", shown, err)
	}
	return s, nil
}

// parseParts is ParseURL for a scheme and hosts. u has the user, the path and the query.
func parseParts(scheme string, hosts []string, u *url.URL) (s Server, err error) {
	if u.RawQuery != "" || u.Fragment != "" {
		return s, errors.New("unknown parameters; must be " + schemes)
	}
	s.Auth.User = u.User.Username()
	s.Auth.Password, _ = u.User.Password()
	plain, kind, _ := strings.Cut(scheme, "+")
	switch {
	case scheme == "unix":
		if hosts[0] != "" || strings.Trim(u.Path, "/") == "" {
			return s, errors.New("needs a path, as in unix:///run/valkey.sock")
		}
		s.Network = "unix"
		s.Address = u.Path
		return s, nil
	case plain == "rediss":
		s.TLS = &TLS{}
	case plain != "redis":
		return s, fmt.Errorf("unknown scheme %q; must be %s", scheme, schemes)
	}
	path := strings.Trim(u.Path, "/")
	switch kind {
	case "":
		if len(hosts) > 1 {
			return s, errors.New("several hosts; use redis+sentinel for Sentinels, redis+cluster for a cluster")
		}
		s.Network = "tcp"
		if s.Address, err = address(hosts[0], "6379"); err != nil {
			return s, err
		}
	case "sentinel":
		s.Master, path, _ = strings.Cut(path, "/")
		if s.Master == "" {
			return s, errors.New("no name of the primary; must be redis+sentinel://host:port,host:port/master, with the name that Sentinel uses")
		}
		if s.Sentinels, err = addresses(hosts, "26379"); err != nil {
			return s, err
		}
	case "cluster":
		if path != "" {
			return s, fmt.Errorf("unknown path %q: clusters have one database", path)
		}
		s.Nodes, err = addresses(hosts, "6379")
		return s, err
	default:
		return s, fmt.Errorf("unknown scheme %q; must be %s", scheme, schemes)
	}
	if path != "" {
		if s.Database, err = strconv.Atoi(path); err != nil || s.Database < 0 {
			return s, fmt.Errorf("database %q must be a number, 0 or greater", path)
		}
	}
	return s, nil
}

func addresses(hosts []string, port string) (all []string, err error) {
	for _, host := range hosts {
		one, err := address(host, port)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// address returns a host with its port, or the given default port.
func address(host, port string) (string, error) {
	u, err := url.Parse("redis://" + host)
	switch {
	case err != nil || u.Host != host || strings.HasSuffix(host, ":"):
		return "", fmt.Errorf("host %q must be a name or an address, and a port from 1 to 65535 behind a colon or none",
			host)
	case u.Hostname() == "":
		return "", errors.New("no host; must be " + schemes)
	case u.Port() != "":
		port = u.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q of %q must be a number from 1 to 65535", port, host)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
