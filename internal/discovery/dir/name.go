package dir

import (
	"strings"

	"warren/internal/cluster"
)

// APIServerFile is the name of the file that lists where the API server is reached. It is no record: no
// machine can have its name.
const APIServerFile = "apiserver.yaml"

// suffix of record files.
const suffix = ".yaml"

// FileName returns the name of a machine's file in the folder.
func FileName(id cluster.NodeID) string { return id.Name + suffix }

// machineOf returns the name of the machine that a file belongs to.
func machineOf(file string) string { return strings.TrimSuffix(file, suffix) }

// isRecord tells record files from everything else in the folder: temporary files start with a dot,
// and apiserver.yaml lists the API servers.
func isRecord(name string) bool {
	return strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, ".") && name != APIServerFile
}
