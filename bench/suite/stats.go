package main

import "slices"

// spread is what several rounds measured.
type spread struct{ median, least, greatest float64 }

// over returns the spread of f over the rounds 0 to n-1, n at least 1.
func over(n int, f func(round int) float64) spread {
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	slices.Sort(values)
	return spread{median: (values[(n-1)/2] + values[n/2]) / 2, least: values[0], greatest: values[n-1]}
}
