package top

import "slices"

// current returns the item that is open or selected.
func (m *model) current() (i item, ok bool) {
	switch {
	case m.snapshot == nil || m.helping:
		return item{}, false
	case m.details != nil:
		return m.details.item, true
	case m.cursor < len(m.list.items):
		return m.list.items[m.cursor], true
	}
	return item{}, false
}

// move moves the cursor. A page is as long as the body.
func (m *model) move(name string) {
	first, last := m.linesOf(m.cursor)
	to := m.cursor
	switch name {
	case "up", "k":
		to--
	case "down", "j":
		to++
	case "pgup", "b":
		to = m.itemAt(first - m.body.Height())
	case "pgdown", "f":
		to = m.itemAt(last + m.body.Height())
	case "g", "home":
		to = 0
	case "G", "end":
		to = len(m.list.items) - 1
	default:
		return
	}
	if to = max(0, min(to, len(m.list.items)-1)); to < len(m.list.items) {
		m.cursor = to
		m.selected = m.list.items[to]
	}
}

// showCursor scrolls the list to the selected item, with its title if both fit.
func (m *model) showCursor() {
	first, last := m.linesOf(m.cursor)
	if first > last {
		return // the list is empty
	}
	title := max(0, min(2, m.body.Height()-(last-first+1)))
	m.body.SetYOffset(min(max(m.body.YOffset(), last-m.body.Height()+1), max(0, first-title)))
}

// linesOf returns the first and the last line of an item.
func (m *model) linesOf(item int) (first, last int) {
	first = len(m.list.lines)
	for i, l := range m.list.lines {
		if l.item == item {
			first = min(first, i)
			last = i
		}
	}
	return first, last
}

// itemAt returns the first item at or after a line.
func (m *model) itemAt(at int) int {
	for _, l := range m.list.lines[min(max(at, 0), len(m.list.lines)):] {
		if l.item >= 0 {
			return l.item
		}
	}
	return len(m.list.items) - 1
}

// place sets the cursor to the selected item. If it has disappeared, the cursor keeps its position.
func (m *model) place() {
	if m.selected.id == "" {
		m.cursor = slices.IndexFunc(m.list.items, func(i item) bool { return i.key != nil || i.limit != nil })
	} else if at := indexOf(m.list.items, m.selected); at >= 0 {
		m.cursor = at
		m.selected = m.list.items[at]
	}
	m.cursor = max(0, min(m.cursor, len(m.list.items)-1))
}
