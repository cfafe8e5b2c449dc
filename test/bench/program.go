package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// programFigure is what one packet costs in to_netdev.
type programFigure struct{ packet, entries, nanoseconds string }

// programCost runs the benchmarks of to_netdev by BPF_PROG_RUN.
func programCost(ctx context.Context) ([]programFigure, error) {
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^$", "-bench", "^BenchmarkToNetdev$", "warren/internal/datapath")
	output, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("measure to_netdev: %w\n%s", err, output)
	}
	figures := parseProgram(string(output))
	if len(figures) == 0 {
		return nil, fmt.Errorf("measure to_netdev: no figures in\n%s", output)
	}
	return figures, nil
}

var programLine = regexp.MustCompile(`(?m)^BenchmarkToNetdev/([^/]+)/(\d+)\S*\s.*?([\d.]+) ns/packet`)

func parseProgram(output string) []programFigure {
	var figures []programFigure
	for _, found := range programLine.FindAllStringSubmatch(output, -1) {
		figures = append(figures, programFigure{found[1], found[2], found[3]})
	}
	return figures
}

func programTable(out *strings.Builder, figures []programFigure) {
	fmt.Fprintf(out, "\n## The program on every packet that leaves\n\n`to_netdev` by BPF_PROG_RUN, without what follows its verdict. "+
		"Packets to a peer are redirected; the others pass. Entries are in the maps, of either kind.\n\n")
	line(out, []string{"packet", "entries", "ns"})
	line(out, []string{"---", "---", "---"})
	for _, f := range figures {
		line(out, []string{f.packet, f.entries, f.nanoseconds})
	}
}
