package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds on a token file and its fields, in bytes.
const (
	maxTokenFileBytes = 64 << 10
	// MinTokenLength and MaxTokenLength bound the length of a token. 32 hexadecimal digits contain
	// 128 bits.
	MinTokenLength     = 32
	MaxTokenLength     = 512
	maxTokenNameLength = 64
)

const (
	// tokenChars are the characters of a bearer token (RFC 6750).
	tokenChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
	// tokenNameChars are the characters of a token's name.
	tokenNameChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._@"
)

// TokenOptions configure [Tokens].
type TokenOptions struct {
	// File is the path of the token file. Each line contains a right (read or write), a name and a
	// token, separated by blanks. Empty lines and lines that start with # are skipped.
	File string
	// Metrics and Logger report reloads. Optional.
	Metrics *telemetry.TokenFile
	Logger  *zap.Logger
}

// Tokens maps bearer tokens to rights. It follows its file while [Tokens.Run] runs. The methods may
// be called concurrently.
//
// Only hashes of tokens are kept. Errors and log lines never contain a part of the file.
type Tokens struct {
	options TokenOptions
	current atomic.Pointer[tokenSet]
}

// tokenSet contains the tokens of a file.
type tokenSet struct {
	sum [sha256.Size]byte // hash of the file
	all []token
}

type token struct {
	sum   [sha256.Size]byte
	name  string
	right Right
	line  int
}

// ReadTokens reads the file. An error names the file and the line.
func ReadTokens(o TokenOptions) (*Tokens, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	t := &Tokens{options: o}
	set, err := t.parse(t.read())
	if err != nil {
		return nil, err
	}
	t.activate(set)
	return t, nil
}

// Find returns the name and the right of a token, or "" and 0 if it is unknown. Its running time
// does not depend on the text.
func (t *Tokens) Find(text string) (name string, right Right) {
	sum := sha256.Sum256([]byte(text))
	set := t.current.Load()
	for i := range set.all {
		if subtle.ConstantTimeCompare(sum[:], set.all[i].sum[:]) == 1 {
			name = set.all[i].name
			right = set.all[i].right
		}
	}
	return name, right
}

// Run reloads the file when it changes, until ctx is done. If the file cannot be loaded, the
// previous tokens stay in use.
func (t *Tokens) Run(ctx context.Context) {
	follower[tokenFile]{
		current: t.current.Load().sum,
		read: func() (tokenFile, [sha256.Size]byte) {
			f := t.read()
			return f, f.sum
		},
		accept: t.reload,
	}.run(ctx)
}

// reload activates the tokens of a file, or counts and logs why it cannot be used. It updates
// metrics before it logs, so that they are current when the line is read.
func (t *Tokens) reload(f tokenFile) {
	m := t.options.Metrics
	log := t.options.Logger
	if f.sum == t.current.Load().sum {
		if m != nil {
			m.LastOK.Set(1)
		}
		log.Info("the token file matches the one in use again",
			telemetry.Clear(t.options.File, telemetry.TokenFileRejected))
		return
	}
	set, err := t.parse(f)
	if err != nil {
		if m != nil {
			m.ReloadErrors.Inc()
			m.LastOK.Set(0)
		}
		telemetry.Raise(log, telemetry.TokenFileRejected, t.options.File, zap.Error(err))
		return
	}
	t.activate(set)
}

func (t *Tokens) activate(set *tokenSet) {
	t.current.Store(set)
	if m := t.options.Metrics; m != nil {
		m.LastOK.Set(1)
	}
	t.options.Logger.Info("token file loaded", zap.String("file", t.options.File), zap.Int("tokens", len(set.all)),
		telemetry.Clear(t.options.File, telemetry.TokenFileRejected))
}

// tokenFile contains the unparsed file, or the error of reading it.
type tokenFile struct {
	text []byte
	err  error
	sum  [sha256.Size]byte // hash of the text or the error
}

func (t *Tokens) read() tokenFile {
	text, err := readTokenFile(t.options.File)
	if err != nil {
		return tokenFile{err: err, sum: sha256.Sum256([]byte(err.Error()))}
	}
	return tokenFile{text: text, sum: sha256.Sum256(text)}
}

func readTokenFile(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// Kubernetes makes a mounted Secret readable by all users by default. A user who can write the
	// file could grant rights.
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("%s: file is world-writable (mode %04o), so any local user could grant themselves rights; run chmod o-w", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxTokenFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes: not a token file", path, maxTokenFileBytes)
	}
	return text, nil
}

// parse parses a file. Errors never repeat a part of a line, because a token may be in the wrong
// place.
func (t *Tokens) parse(f tokenFile) (*tokenSet, error) {
	if f.err != nil {
		return nil, f.err
	}
	path := t.options.File
	text := f.text
	set := &tokenSet{sum: f.sum}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("%s: the last line has no newline and may be truncated; end it with a newline", path)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		token, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		for i := range set.all {
			if set.all[i].sum == token.sum {
				return nil, fmt.Errorf("%s:%d: duplicate token; first used on line %d", path, number, set.all[i].line)
			}
		}
		token.line = number
		set.all = append(set.all, token)
	}
	if len(set.all) == 0 {
		return nil, fmt.Errorf("%s contains no token; to revoke all tokens, replace them by a new one", path)
	}
	return set, nil
}

func parseToken(line string) (token, error) {
	words := strings.Fields(line)
	switch {
	case len(words) != 3:
		return token{}, fmt.Errorf("the line has %d words: must be RIGHT NAME TOKEN, such as: write alice $(openssl rand -hex 32)", len(words))
	case rights[words[0]] == 0:
		return token{}, errors.New("the first word must be a right (read or write), followed by a name and a token")
	case len(words[1]) > maxTokenNameLength || strings.Trim(words[1], tokenNameChars) != "":
		return token{}, fmt.Errorf("the name (second word) must consist of at most %d letters, digits and -._@",
			maxTokenNameLength)
	case len(words[2]) < MinTokenLength || len(words[2]) > MaxTokenLength:
		return token{}, fmt.Errorf("the token (third word) has %d characters: must be %d to %d; generate one with openssl rand -hex 32", len(words[2]), MinTokenLength, MaxTokenLength)
	case strings.Trim(words[2], tokenChars) != "":
		return token{}, errors.New("the token (third word) must consist of letters, digits and -._~+/=")
	}
	return token{sum: sha256.Sum256([]byte(words[2])), name: words[1], right: rights[words[0]]}, nil
}
