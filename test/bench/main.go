// Command bench measures what Warren costs: bulk TCP and request/response between two nodes of a lab, in
// clear, through plain WireGuard, through Warren's engine alone and through Warren, in the same namespaces and
// the same run.
//
//	go run ./test/bench -binary bin/warren            # as root; prints the table, writes bench/
//	go run ./test/bench -binary bin/warren -profile   # where the tunnel process spends its time
//	go run ./test/bench -binary bin/warren -switching # what running connections notice of it
//
// The settings take turns, once per run, so that what else the machine does falls on all of them. See
// docs/performance.md for what the figures say.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// options are the flags.
type options struct {
	binary, baseline string
	runs             int
	seconds          int
	out              string
	profile          bool
	switching        bool
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/warren", "warren to measure")
	flag.StringVar(&o.baseline, "baseline", "", "another warren to compare with in the same run")
	flag.IntVar(&o.runs, "runs", 5, "how often every setting takes its turn")
	flag.IntVar(&o.seconds, "seconds", 3, "length of one measurement")
	flag.StringVar(&o.out, "out", "bench", "folder for results.md and the charts; empty writes nothing")
	flag.BoolVar(&o.profile, "profile", false, "profile the tunnel processes under bulk load instead")
	flag.BoolVar(&o.switching, "switching", false, "measure what connections notice that run while encryption is switched instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, o, log); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, log *slog.Logger) (err error) {
	if o.runs < 1 || o.seconds < 1 {
		return fmt.Errorf("%d runs of %d seconds: at least 1 of each", o.runs, o.seconds)
	}
	for _, path := range []*string{&o.binary, &o.baseline} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	b, err := newBed(ctx, o.binary, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.profile {
		return profile(ctx, b, o.out)
	}
	if o.switching {
		return switching(ctx, b, o)
	}
	return bench(ctx, b, o)
}

// bench measures every setting in turn, run after run, and then the program alone.
func bench(ctx context.Context, b *bed, o options) error {
	r, err := b.takeTurns(ctx, o)
	if err != nil {
		return err
	}
	b.log.Info("measuring", "program", "to_netdev")
	if r.program, err = programCost(ctx); err != nil {
		return err
	}
	fmt.Print(r.markdown())
	return writeFiles(o.out, r.files())
}

// takeTurns measures every setting in turn, run after run.
func (b *bed) takeTurns(ctx context.Context, o options) (report, error) {
	stock, err := b.buildStock(ctx)
	if err != nil {
		return report{}, err
	}
	settings := []setting{inClear{}, plainWireGuard(stock), warrenEngine(o.binary), warren{o.binary}}
	if o.baseline != "" {
		settings = append(settings, warrenEngine(o.baseline), warren{o.baseline})
	}
	r := report{machine: describeMachine(), runs: o.runs, seconds: o.seconds, settings: names(settings)}
	for turn := range o.runs {
		for i, s := range settings {
			b.log.Info("measuring", "run", turn+1, "of", o.runs, "setting", r.settings[i])
			figures, err := b.measure(ctx, s, time.Duration(o.seconds)*time.Second)
			if err != nil {
				return r, fmt.Errorf("run %d, %s: %w", turn+1, r.settings[i], err)
			}
			r.add(r.settings[i], figures)
		}
	}
	return r, nil
}

const (
	// measured are the four settings of every bench; those after them are of the baseline.
	measured = 4
	// ofBaseline is behind their names.
	ofBaseline = " (baseline)"
)

// names are the columns of the table.
func names(settings []setting) []string {
	var all []string
	for i, s := range settings {
		name := s.name()
		if i >= measured {
			name += ofBaseline
		}
		all = append(all, name)
	}
	return all
}
