package control

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// BinariesVariable is the environment variable that names the folder of the Kubernetes binaries.
const BinariesVariable = "WARREN_KUBE_BIN"

// ErrNoBinaries says that there is no Kubernetes to run.
var ErrNoBinaries = errors.New("no Kubernetes binaries: scripts/kubetools.sh builds them")

// FindBinaries returns the folder of the Kubernetes binaries and CNI plugins: the named one; if that is "",
// what the environment names; or .cache/kube in the current folder, in one above it, or in one above the program.
func FindBinaries(named string) (string, error) {
	if named = cmp.Or(named, os.Getenv(BinariesVariable)); named != "" {
		return checkBinaries(named)
	}
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if program, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(program))
	}
	for _, dir := range starts {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if found, err := checkBinaries(filepath.Join(dir, ".cache", "kube")); err == nil {
				return found, nil
			}
		}
	}
	return "", ErrNoBinaries
}

func checkBinaries(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, string(APIServer))); err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoBinaries, err)
	}
	return filepath.Abs(dir)
}
