package examples_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// curlRequest is a parsed command line.
type curlRequest struct {
	address, write string
	method, body   string // GET if both are empty
	headers        []string
	include, drop  bool // print the head; omit the body
	parallel       int
}

// curl implements the part of curl that the READMEs use, for machines without curl: GET, other
// methods with -X and -d, the options -s, -i, -D -, -o, -w '%{http_code}', -H and --parallel-max,
// and ranges such as [1-20] in the address. It rejects everything else.
func curl(args []string) error {
	r, err := parseCurl(args)
	if err != nil {
		return err
	}
	addresses, err := expand(r.address)
	if err != nil {
		return err
	}
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		errs  []error
		slots = make(chan struct{}, r.parallel)
	)
	for _, address := range addresses {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			out, err := r.get(address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
			_, _ = os.Stdout.WriteString(out)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func parseCurl(args []string) (curlRequest, error) {
	r := curlRequest{parallel: 1}
	for i := 0; i < len(args); i++ {
		value := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch a := args[i]; a {
		case "-s", "--no-progress-meter", "--parallel", "--parallel-immediate":
		case "-si":
			r.include = true
		case "-D":
			if to := value(); to != "-" {
				return r, fmt.Errorf("-D %s: only - is supported", to)
			}
			r.include = true
		case "-o":
			if to := value(); to != "/dev/null" {
				return r, fmt.Errorf("-o %s: only /dev/null is supported", to)
			}
			r.drop = true
		case "-w":
			r.write = strings.ReplaceAll(value(), `\n`, "\n")
		case "-X":
			r.method = value()
		case "-d":
			r.body = strings.TrimPrefix(r.body+"&"+value(), "&")
		case "-H":
			r.headers = append(r.headers, value())
		case "--parallel-max":
			n, err := strconv.Atoi(value())
			if err != nil || n < 1 {
				return r, fmt.Errorf("--parallel-max %s: must be a number above 0", args[i])
			}
			r.parallel = n
		default:
			if strings.HasPrefix(a, "-") || r.address != "" {
				return r, fmt.Errorf("%s: not supported by the stand-in; install curl", a)
			}
			r.address = a
		}
	}
	return r, nil
}

var ranges = regexp.MustCompile(`\[(\d+)-(\d+)\]`)

// expand returns the addresses of an address that may contain a range.
func expand(address string) ([]string, error) {
	m := ranges.FindStringSubmatchIndex(address)
	if m == nil {
		return []string{address}, nil
	}
	first, err := strconv.Atoi(address[m[2]:m[3]])
	last, err2 := strconv.Atoi(address[m[4]:m[5]])
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	var all []string
	for n := first; n <= last; n++ {
		all = append(all, address[:m[0]]+strconv.Itoa(n)+address[m[1]:])
	}
	return all, nil
}

// get returns the output for one response. Heads are printed as received, because net/http would
// change names and order.
func (r curlRequest) get(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	path := u.RequestURI()
	host, headers := "host: "+u.Host, []string{}
	for _, h := range r.headers {
		if name, _, _ := strings.Cut(h, ":"); strings.EqualFold(name, "host") {
			host = h
			continue
		}
		headers = append(headers, h+"\r\n")
	}
	method := cmp.Or(r.method, "GET")
	if r.body != "" {
		method = cmp.Or(r.method, "POST")
		headers = append(headers, fmt.Sprintf("content-length: %d\r\ncontent-type: application/x-www-form-urlencoded\r\n", len(r.body)))
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\nuser-agent: curl\r\naccept: */*\r\n%s\r\n%s", method, path, host, strings.Join(headers, ""), r.body); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	var head strings.Builder
	for line := ""; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			return "", err
		}
		head.WriteString(line)
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), in)), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return "", err
	}
	out := ""
	if r.include {
		out += head.String()
	}
	if !r.drop {
		out += string(body)
	}
	return out + strings.ReplaceAll(r.write, "%{http_code}", strconv.Itoa(answer.StatusCode)), nil
}
