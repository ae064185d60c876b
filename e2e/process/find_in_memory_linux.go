package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// FindInMemory searches the memory of a process for a text and returns the places: the line of
// /proc/PID/maps and the surrounding bytes. By default the kernel allows this for the parent.
func FindInMemory(pid int, text []byte) (places []string, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := lines.Text()
		words := strings.Fields(line)
		if len(words) < 2 || words[1][0] != 'r' || strings.Contains(line, "[v") { // [vvar] and similar areas belong to the kernel
			continue
		}
		from, to, _ := strings.Cut(words[0], "-")
		start, err := strconv.ParseInt(from, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		end, err := strconv.ParseInt(to, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		found, err := findText(io.NewSectionReader(memory, start, end-start), text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", line, err)
		}
		for _, at := range found {
			places = append(places, fmt.Sprintf("%s at %s", at, line))
		}
	}
	return places, lines.Err()
}

// findText returns the surroundings of each occurrence of a text.
func findText(r io.Reader, text []byte) (places []string, err error) {
	const around = 64
	buffer := make([]byte, 1<<20)
	kept := 0
	offset := 0
	for {
		n, err := io.ReadFull(r, buffer[kept:])
		some := buffer[:kept+n]
		for at := 0; ; {
			i := bytes.Index(some[at:], text)
			if i < 0 {
				break
			}
			at += i
			places = append(places, fmt.Sprintf("%#x: %q", offset+at, some[max(0, at-around):min(len(some), at+len(text)+around)]))
			at += len(text)
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return places, nil
		case err != nil:
			return nil, err
		}
		kept = len(text) - 1
		offset += len(some) - kept
		copy(buffer, some[len(some)-kept:])
	}
}
