package leases

// queue is a [heap.Interface] of leases by when they expire.
type queue []*lease

func (q *queue) Len() int           { return len(*q) }
func (q *queue) Less(i, j int) bool { return (*q)[i].Expires < (*q)[j].Expires }
func (q *queue) Swap(i, j int) {
	a := *q
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	l, _ := x.(*lease)
	l.index = len(*q)
	*q = append(*q, l)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	return l
}
