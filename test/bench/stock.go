package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// stockName is how the program of WireGuard's Go module calls itself.
const stockName = "wireguard-go"

// buildStock builds that program as it was published, of the module's version in go.mod and in the way that
// Warren is built. It is there until the bed is closed.
func (b *bed) buildStock(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "warren-bench-")
	if err != nil {
		return "", err
	}
	b.stop = append(b.stop, func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, stockName)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "golang.zx2c4.com/wireguard")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", stockName, err, output)
	}
	return binary, nil
}
