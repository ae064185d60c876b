package report

import "slices"

// Spread summarizes the values of several rounds.
type Spread struct{ Median, Min, Max float64 }

// Over returns the spread of f over the rounds 0 to n-1, with n at least 1.
func Over(n int, f func(round int) float64) Spread {
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	slices.Sort(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}
