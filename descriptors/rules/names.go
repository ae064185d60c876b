package rules

import (
	"strings"
)

// units are all units, shortest first.
var units = []Unit{Second, Minute, Hour, Day, Week, Month, Year}

// UnitNames returns the names of all units, shortest unit first.
func UnitNames() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.String()
	}
	return names
}

// UnitNamed returns the unit with the given name, in any letter case. ok is false if there is none.
func UnitNamed(name string) (u Unit, ok bool) {
	for _, u := range units {
		if strings.EqualFold(name, u.String()) {
			return u, true
		}
	}
	return 0, false
}
