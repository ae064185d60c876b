package process

import (
	"math"

	"go.uber.org/zap"
)

// reservedFiles are open files for all else than gRPC connections: listeners and their
// connections over HTTP, rules, logs.
const reservedFiles = 256

// ConnectionLimits returns how many connections over gRPC, and how many to each HTTP
// listener, there may be: as many as are wanted, or fewer, which it logs, where the
// process may not open so many files.
func ConnectionLimits(wantedGRPC, wantedHTTP int, logger *zap.Logger) (grpc, http int) {
	files := openFiles()
	grpc = connectionLimit(wantedGRPC, files)
	if grpc < wantedGRPC {
		logger.Warn("--max-connections is lowered to what the limit on open files leaves",
			zap.Int("connections", grpc), zap.Uint64("open_files", files))
	}
	http = httpConnectionLimit(wantedHTTP, grpc, files)
	if http < wantedHTTP {
		logger.Info("--max-http-connections is lowered to what the limit on open files leaves",
			zap.Int("connections", http), zap.Uint64("open_files", files))
	}
	return grpc, http
}

// connectionLimit returns how many connections may be open where the process may
// open that many files: wanted, or as many as leave keptFiles, but half of the
// files in any case.
func connectionLimit(wanted int, files uint64) int {
	room := files / 2
	if files > reservedFiles {
		room = max(room, files-reservedFiles)
	}
	return int(min(uint64(max(wanted, 0)), room, math.MaxInt32))
}

// httpConnectionLimit returns how many connections each HTTP listener may have beside
// so many over gRPC: wanted, or an eighth of the files that are left, so that the
// listeners for HTTP, at most four, take half of them.
func httpConnectionLimit(wanted, grpc int, files uint64) int {
	left := files - min(files, uint64(max(grpc, 0)))
	return int(min(uint64(max(wanted, 0)), max(left/8, 1), math.MaxInt32))
}
