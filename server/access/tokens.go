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
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// The bounds on a file of tokens and on what stands in it, in bytes.
const (
	maxTokenFile = 64 << 10
	// MinToken and MaxToken bound a token's length. 32 hexadecimal digits are 128 bits, which nobody guesses.
	MinToken     = 32
	MaxToken     = 512
	maxTokenName = 64
)

const (
	// ofTokens are the characters of a token, as RFC 6750 has them.
	ofTokens = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
	// ofNames are those of its name.
	ofNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._@"
)

// TokenOptions say where tokens come from.
type TokenOptions struct {
	// File has a line for each token: its right (read or write), its name, and the token, with blanks
	// between them. Empty lines and those that begin with # are skipped.
	File string
	// Poll is how often [Tokens.Run] reads the file. 0 means every second.
	Poll time.Duration
	// Metrics and Logger get changes of the file. Optional.
	Metrics *telemetry.TokenFile
	Logger  *zap.Logger
}

// Tokens are bearer tokens and what they are for. They follow their file while [Tokens.Run] runs. The
// methods may be called concurrently.
//
// Only hashes are kept, and no error and no line of the log has a part of the file.
type Tokens struct {
	options TokenOptions
	inForce atomic.Pointer[tokenSet]
}

// tokenSet is what a file says.
type tokenSet struct {
	sum [sha256.Size]byte // of the file
	all []token
}

type token struct {
	sum   [sha256.Size]byte
	name  string
	right Right
	line  int
}

// ReadTokens reads the file. An error names it and the line.
func ReadTokens(o TokenOptions) (*Tokens, error) {
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	t := &Tokens{options: o}
	set, err := t.parse(t.read())
	if err != nil {
		return nil, err
	}
	t.use(set)
	return t, nil
}

// Find returns the name and the right of a token, "" and 0 if there is none such. Its time tells nothing of the
// tokens that there are.
func (t *Tokens) Find(text string) (name string, right Right) {
	sum := sha256.Sum256([]byte(text))
	set := t.inForce.Load()
	for i := range set.all {
		if subtle.ConstantTimeCompare(sum[:], set.all[i].sum[:]) == 1 {
			name, right = set.all[i].name, set.all[i].right
		}
	}
	return name, right
}

// Run follows the file until ctx ends. If the file does not load, it counts and logs that, and the tokens in use stay in use.
func (t *Tokens) Run(ctx context.Context) {
	follower[tokenFile]{
		interval: t.options.Poll,
		current:  t.inForce.Load().sum,
		read: func() (tokenFile, [sha256.Size]byte) {
			f := t.read()
			return f, f.sum
		},
		accept: t.take,
	}.run(ctx)
}

// take puts in force what was read, or logs why not. Metrics come before the log, so that they are current for
// whoever has read it.
func (t *Tokens) take(f tokenFile) {
	m, log := t.options.Metrics, t.options.Logger
	if f.sum == t.inForce.Load().sum {
		if m != nil {
			m.LastOK.Set(1)
		}
		log.Info("the token file is back at what is in use", telemetry.Clear(t.options.File, telemetry.TokenFileRejected))
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
	t.use(set)
}

func (t *Tokens) use(set *tokenSet) {
	t.inForce.Store(set)
	if m := t.options.Metrics; m != nil {
		m.LastOK.Set(1)
	}
	t.options.Logger.Info("token file loaded", zap.String("file", t.options.File), zap.Int("tokens", len(set.all)),
		telemetry.Clear(t.options.File, telemetry.TokenFileRejected))
}

// tokenFile is the content of the file, or the error of reading it.
type tokenFile struct {
	text []byte
	err  error
	sum  [sha256.Size]byte // of the content or the error
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
	// A mounted Secret can be read by all by default, as other programs expect. But who may write it gives
	// himself rights.
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("%s: everybody may write it (mode %04o), and so could give himself rights: chmod o-w", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxTokenFile {
		return nil, fmt.Errorf("%s is larger than %d bytes: no file of tokens", path, maxTokenFile)
	}
	return text, nil
}

// parse reads the lines of a file. Whatever is wrong with one, the error repeats nothing of it: a token may stand in
// the wrong place.
func (t *Tokens) parse(f tokenFile) (*tokenSet, error) {
	if f.err != nil {
		return nil, f.err
	}
	path, text, set := t.options.File, f.text, &tokenSet{sum: f.sum}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("%s: the last line does not end: it may be cut short; end it with a newline", path)
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
				return nil, fmt.Errorf("%s:%d: the token is that of line %d: each has its own", path, number, set.all[i].line)
			}
		}
		token.line = number
		set.all = append(set.all, token)
	}
	if len(set.all) == 0 {
		return nil, fmt.Errorf("%s has no token; to withdraw all, put a new one in their place", path)
	}
	return set, nil
}

func parseToken(line string) (token, error) {
	words := strings.Fields(line)
	switch {
	case len(words) != 3:
		return token{}, fmt.Errorf("it has %d words: must be RIGHT NAME TOKEN, such as: write alice $(openssl rand -hex 32)", len(words))
	case rights[words[0]] == 0:
		return token{}, errors.New("it begins with no right: must be read or write, then a name, then the token")
	case len(words[1]) > maxTokenName || strings.Trim(words[1], ofNames) != "":
		return token{}, fmt.Errorf("the name, its second word, must be letters, digits and any of -._@, %d at most", maxTokenName)
	case len(words[2]) < MinToken || len(words[2]) > MaxToken:
		return token{}, fmt.Errorf("the token, its third word, has %d characters: must be %d to %d; openssl rand -hex 32 makes one", len(words[2]), MinToken, MaxToken)
	case strings.Trim(words[2], ofTokens) != "":
		return token{}, errors.New("the token, its third word, must be letters, digits and any of -._~+/=")
	}
	return token{sum: sha256.Sum256([]byte(words[2])), name: words[1], right: rights[words[0]]}, nil
}
