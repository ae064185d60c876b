package process

import (
	"math"

	"go.uber.org/zap"
)

// reservedFiles is the number of open files for everything except gRPC connections: listeners, HTTP
// connections, rules and logs.
const reservedFiles = 256

// ConnectionLimits returns the maximum number of gRPC connections and of connections per HTTP
// listener: the wanted numbers, or fewer if the limit on open files requires it, which it logs.
func ConnectionLimits(wantedGRPC, wantedHTTP int, logger *zap.Logger) (grpc, http int) {
	files := openFiles()
	grpc = connectionLimit(wantedGRPC, files)
	if grpc < wantedGRPC {
		logger.Warn("lowering --max-connections to fit the limit on open files",
			zap.Int("connections", grpc), zap.Uint64("open_files", files))
	}
	http = httpConnectionLimit(wantedHTTP, grpc, files)
	if http < wantedHTTP {
		logger.Info("lowering the connections per HTTP listener to fit the limit on open files",
			zap.Int("connections", http), zap.Uint64("open_files", files))
	}
	return grpc, http
}

// connectionLimit returns the maximum number of gRPC connections with the given limit on open
// files: wanted, or what leaves reservedFiles, but at least half of the files.
func connectionLimit(wanted int, files uint64) int {
	room := files / 2
	if files > reservedFiles {
		room = max(room, files-reservedFiles)
	}
	return int(min(uint64(max(wanted, 0)), room, math.MaxInt32))
}

// httpConnectionLimit returns the maximum number of connections per HTTP listener, given that of
// gRPC connections: wanted, or an eighth of the remaining files, so that the HTTP listeners, at
// most four, take half of them.
func httpConnectionLimit(wanted, grpc int, files uint64) int {
	left := files - min(files, uint64(max(grpc, 0)))
	return int(min(uint64(max(wanted, 0)), max(left/8, 1), math.MaxInt32))
}
