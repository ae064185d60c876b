package ruleset

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
)

// RulesError adds a remedy to the error of rules that failed to load: the flag that sets the path
// of a missing file. defaultsFile is the path of the file of defaults, empty if there is none.
func RulesError(err error, defaultsFile string) error {
	if errors.Is(err, source.ErrNoFile) {
		return fmt.Errorf("%w: set --config to another path, or allow it with --allow-empty", err)
	}
	var missing *fs.PathError
	if errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist) {
		if missing.Path == defaultsFile {
			return fmt.Errorf("no defaults at %s: set --defaults to an existing file", missing.Path)
		}
		return fmt.Errorf("no rules at %s: set --config to a rule file or a directory of rule files", missing.Path)
	}
	return err
}

// TableError adds the name of the table, and the remedy, to the error of a table that fails to
// load.
func TableError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("table %q: %v: set its file with --table %s=PATH", name, err, name) //nolint:errorlint // if it were wrapped, RulesError would report missing rules
	}
	if errors.Is(err, source.ErrNoRows) {
		return fmt.Errorf("failed to load table %q:\n%w: allow it with --allow-empty-tables", name, err)
	}
	return fmt.Errorf("failed to load table %q:\n%w", name, err)
}
