package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// cryptoSize is the length in bytes of what is encrypted to compare with: about a full packet.
const cryptoSize = 1420

// cryptoLimit is how fast one core encrypts when it does nothing else.
type cryptoLimit struct {
	name           string
	bytesPerSecond float64
}

func cryptoLimits(ctx context.Context) ([]cryptoLimit, error) {
	output, err := exec.CommandContext(ctx, "openssl", "speed", "-mr", "-seconds", "1", "-bytes", strconv.Itoa(cryptoSize), "-evp", "chacha20-poly1305").Output()
	if err != nil {
		return nil, fmt.Errorf("measure openssl: %w", err)
	}
	fast, err := parseOpenSSL(string(output))
	if err != nil {
		return nil, err
	}
	return []cryptoLimit{{"openssl", fast}, {"Go (golang.org/x/crypto), which the tunnel process uses", goSpeed()}}, nil
}

// parseOpenSSL reads the line "+F:number:name:bytes per second" of `openssl speed -mr`.
func parseOpenSSL(output string) (float64, error) {
	for text := range strings.Lines(output) {
		if fields := strings.Split(strings.TrimSpace(text), ":"); fields[0] == "+F" && len(fields) == 4 {
			return strconv.ParseFloat(fields[3], 64)
		}
	}
	return 0, fmt.Errorf("openssl speed says no speed: %q", output)
}

func goSpeed() float64 {
	aead, err := chacha20poly1305.New(make([]byte, chacha20poly1305.KeySize))
	if err != nil { // only for a key of another length
		return 0
	}
	message, nonce := make([]byte, cryptoSize, cryptoSize+aead.Overhead()), make([]byte, aead.NonceSize())
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			aead.Seal(message[:0], nonce, message, nil)
		}
	})
	return float64(result.N) * cryptoSize / result.T.Seconds()
}
