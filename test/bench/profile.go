package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/wireguard/userspace"
)

// profileLoad is how long the bulk transfer of a profile takes: all of it is within the profile.
const profileLoad = userspace.ProfileTime - 2*time.Second

// profile shows where the tunnel processes of both nodes spend their time under one stream of bulk TCP from n1 to
// n2, and what the processor could do if it had only to encrypt.
func profile(ctx context.Context, b *bed, out string) (err error) {
	p := profiled{machine: describeMachine()}
	w := warren{b.binary}
	if err := w.enter(ctx, b); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.leave(context.WithoutCancel(ctx), b)) }()
	path := b.paths(w)[0]
	if err := b.warmUp(ctx, path); err != nil {
		return err
	}
	b.log.Info("profiling", "for", userspace.ProfileTime)
	if p.bytes, err = b.profiledBulk(ctx, path); err != nil {
		return err
	}
	for i, node := range []string{"n1", "n2"} {
		if p.ends[i], err = b.readProfile(ctx, node); err != nil {
			return err
		}
	}
	if p.limits, err = cryptoLimits(ctx); err != nil {
		return err
	}
	fmt.Print(p.markdown())
	return writeFiles(out, map[string]string{"profile.md": p.markdown()})
}

// profiledBulk has both tunnel processes profile themselves while data is sent, and returns how many bytes
// arrived.
func (b *bed) profiledBulk(ctx context.Context, p path) (float64, error) {
	pids, err := b.tunnels()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
			return 0, fmt.Errorf("ask process %d for a profile: %w", pid, err)
		}
	}
	text, err := b.iperf(ctx, p, 1, forTime(profileLoad)...)
	if err != nil {
		return 0, err
	}
	t, err := parseTransfer(text)
	return t.bytes, err
}

// readProfile waits for the profile of a node's tunnel process and sums it up by kind.
func (b *bed) readProfile(ctx context.Context, node string) (kinds, error) {
	path := filepath.Join(b.RunDir(node), "tunnel-warren0.pprof")
	for deadline := time.Now().Add(2 * userspace.ProfileTime); ; time.Sleep(50 * time.Millisecond) {
		_, err := os.Stat(path)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return nil, err
		}
	}
	command := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-unit=ms", "-nodecount=0", "-nodefraction=0", "-edgefraction=0", path)
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return parseTop(string(output))
}

// kinds is the time in a profile by kind, in milliseconds.
type kinds map[string]float64

func (k kinds) sum() (all float64) {
	for _, value := range k {
		all += value
	}
	return all
}

// kind is what a function spends its time on.
type kind struct {
	name    string
	pattern *regexp.Regexp // of the functions' names
}

// allKinds in the order of the table; the first whose pattern matches counts, and the last takes what is left.
var allKinds = []kind{
	{"encryption", regexp.MustCompile(`/(chacha20poly1305|chacha20|poly1305|curve25519|blake2s)\b`)},
	{"system calls", regexp.MustCompile(`(^|/)syscall[./]`)},
	{"copying and clearing", regexp.MustCompile(`^runtime\.mem(move|clr)`)},
	{"checksums, cutting and merging TCP", regexp.MustCompile(`wireguard/tun\.`)},
	{"scheduling, locks, memory", regexp.MustCompile(`^(runtime|sync|internal/(sync|runtime)|time)[./]`)},
	{"the engine, and waiting for memory", regexp.MustCompile(``)},
}

func kindOf(function string) string {
	return allKinds[slices.IndexFunc(allKinds, func(k kind) bool { return k.pattern.MatchString(function) })].name
}

var topLine = regexp.MustCompile(`(?m)^\s*([\d.]+)(?:ms)?\s+[\d.]+%\s+[\d.]+%\s+[\d.]+(?:ms)?\s+[\d.]+%\s+(\S+)`)

// parseTop reads what `go tool pprof -top -unit=ms` prints.
func parseTop(text string) (kinds, error) {
	sums := kinds{}
	for _, found := range topLine.FindAllStringSubmatch(text, -1) {
		flat, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return nil, err
		}
		sums[kindOf(found[2])] += flat
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("the profile has no samples: %s", text)
	}
	return sums, nil
}

// profiled is what a profile says.
type profiled struct {
	machine []string
	bytes   float64  // that TCP delivered while it was taken
	ends    [2]kinds // sender and receiver
	limits  []cryptoLimit
}

func (p profiled) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Where the tunnel process spends its time\n\n"+
		"Written by `make bench-profile`; what it says is in [docs/performance.md](../docs/performance.md).\n\n")
	for _, words := range p.machine {
		fmt.Fprintf(&out, "- %s\n", words)
	}
	fmt.Fprintf(&out, "- one stream of TCP, host → host, %.2f GiB in %v\n\nCPU time for each byte that TCP delivers:\n\n", p.bytes/gibibyte, profileLoad)
	line(&out, []string{"", "sender, ns", "share", "receiver, ns", "share"})
	line(&out, slices.Repeat([]string{"---"}, 5))
	for _, k := range allKinds {
		line(&out, p.row(k.name, func(end kinds) float64 { return end[k.name] }))
	}
	line(&out, p.row("all", kinds.sum))
	fmt.Fprintf(&out, "\nChaCha20-Poly1305 alone, messages of %d bytes, one core:\n\n", cryptoSize)
	line(&out, []string{"", "GB/s", "ns for a byte"})
	line(&out, slices.Repeat([]string{"---"}, 3))
	for _, limit := range p.limits {
		line(&out, []string{limit.name, number(limit.bytesPerSecond / 1e9), number(1e9 / limit.bytesPerSecond)})
	}
	return out.String()
}

func (p profiled) row(name string, of func(kinds) float64) []string {
	cells := []string{name}
	for _, end := range p.ends {
		share := 0.0
		if all := end.sum(); all > 0 {
			share = of(end) / all
		}
		cells = append(cells, number(of(end)*1e6/p.bytes), fmt.Sprintf("%.0f %%", 100*share))
	}
	return cells
}
