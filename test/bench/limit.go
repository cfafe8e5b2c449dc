package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/unix"
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
	own, err := goSpeed()
	return []cryptoLimit{{"openssl", fast}, {"Go (golang.org/x/crypto), which the tunnel process uses", own}}, err
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

// goSpeed is measured in CPU time, as openssl does: others may want the core, too.
func goSpeed() (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	aead, err := chacha20poly1305.New(make([]byte, chacha20poly1305.KeySize))
	if err != nil {
		return 0, err
	}
	message, nonce := make([]byte, cryptoSize, cryptoSize+aead.Overhead()), make([]byte, aead.NonceSize())
	start, count := threadTime(), 0
	for ; threadTime()-start < time.Second; count += 1000 {
		for range 1000 {
			aead.Seal(message[:0], nonce, message, nil)
		}
	}
	return float64(count) * cryptoSize / (threadTime() - start).Seconds(), nil
}

// threadTime is what the calling thread has used of a processor.
func threadTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &used) // fails only for a bad address
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
