package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"warren/internal/lab"
)

// leftovers lists everything on the machine that still bears the name of a lab: namespaces, mounts,
// files and processes. It looks by name only, so that it does not share a mistake with `lab down`.
func leftovers(name string) []string {
	var left []string
	for _, pattern := range []string{"/run/netns/warren-" + name + "-*", filepath.Join(lab.BaseDir, name)} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "warren-"+name+"-") || strings.Contains(line, lab.BaseDir+"/"+name+"/") {
			left = append(left, "mount: "+strings.TrimSpace(line))
		}
	}
	return append(left, processes(lab.BaseDir+"/"+name+"/", "warren-"+name+"-")...)
}

// processes lists those whose command line or environment contains one of the texts.
func processes(texts ...string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range files {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		for _, text := range texts {
			if strings.Contains(string(line)+string(environment), text) {
				found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(dir), strings.ReplaceAll(string(line), "\x00", " ")))
				break
			}
		}
	}
	return found
}
