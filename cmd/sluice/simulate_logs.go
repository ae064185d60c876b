package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// openLogs opens the logs. It returns an error if two paths are the same file, or if several is
// true and a log can be read only once.
func openLogs(c console, paths []string, several bool) ([]accesslog.Log, error) {
	var logs []accesslog.Log
	var infos []os.FileInfo
	for _, path := range paths {
		log, info, err := openLog(c, path)
		if err != nil {
			return nil, err
		}
		for i, other := range infos {
			if os.SameFile(info, other) {
				return nil, fmt.Errorf("%s and %s are the same file: name it once", logs[i].Name, log.Name)
			}
		}
		if several && (path == "-" || !info.Mode().IsRegular()) {
			return nil, fmt.Errorf("--recommend reads the logs several times, but %s can be read only once; save it to a file first", log.Name)
		}
		logs = append(logs, log)
		infos = append(infos, info)
	}
	return logs, nil
}

// openLog returns a log and the info of its file, nil for a reader in memory. Only a regular file can be
// read again.
func openLog(c console, path string) (log accesslog.Log, info os.FileInfo, err error) {
	if path == "-" {
		if f, ok := c.in.(*os.File); ok {
			info, err = f.Stat()
		}
		return accesslog.FromStream("standard input", c.in), info, err
	}
	if info, err = os.Stat(path); err != nil {
		return log, nil, err
	}
	if info.IsDir() {
		return log, nil, fmt.Errorf("%s is a directory: name the logs in it", path)
	}
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	if info.Mode().IsRegular() {
		return accesslog.Log{Name: path, Open: open}, info, nil
	}
	f, err := open()
	if err != nil {
		return log, nil, err
	}
	return accesslog.FromStream(path, f), info, nil
}
