package report

import "slices"

// Spread summarizes the values of several rounds.
type Spread struct{ Median, Least, Greatest float64 }

// Over returns the spread of f over the rounds 0 to n-1, with n at least 1.
func Over(n int, f func(round int) float64) Spread {
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	slices.Sort(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Least: values[0], Greatest: values[n-1]}
}
