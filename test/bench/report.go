package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report is what is written down: for each metric and setting one value of each run, in the order of the runs.
type report struct {
	machine  []string
	runs     int
	seconds  int
	settings []string // columns: clear, plain WireGuard, Warren's engine, Warren, then the baseline's
	metrics  []metric // rows
	values   map[metric]map[string][]float64
	program  []programFigure
}

// add notes the figures of one run of a setting.
func (r *report) add(setting string, figures []figure) {
	if r.values == nil {
		r.values = map[metric]map[string][]float64{}
	}
	for _, f := range figures {
		if r.values[f.metric] == nil {
			r.values[f.metric] = map[string][]float64{}
			r.metrics = append(r.metrics, f.metric)
		}
		r.values[f.metric][setting] = append(r.values[f.metric][setting], f.value)
	}
}

// median returns the middle value, or the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// ratio returns the median over the runs of value ÷ base: what slows the machine down for one run slows both.
// It is 0 when there is nothing to divide by.
func ratio(values, base []float64) float64 {
	var ratios []float64
	for i := range min(len(values), len(base)) {
		if base[i] > 0 {
			ratios = append(ratios, values[i]/base[i])
		}
	}
	return median(ratios)
}

// comparison is a column of ratios.
type comparison struct{ setting, base string }

// comparisons are Warren with each of the others, and every setting that has a baseline with that.
func (r report) comparisons() []comparison {
	clear, plain, engine, warren := r.settings[0], r.settings[1], r.settings[2], r.settings[3]
	all := []comparison{{warren, plain}, {warren, engine}, {warren, clear}}
	for _, base := range r.settings[measured:] {
		all = append(all, comparison{strings.TrimSuffix(base, ofBaseline), base})
	}
	return all
}

func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Results\n\nWritten by `make bench`; what the figures say is in [docs/performance.md](../docs/performance.md).\n\n")
	for _, line := range r.machine {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	fmt.Fprintf(&out, "- %d runs, in each of which the settings take turns; %d s for each measurement\n\n", r.runs, r.seconds)
	fmt.Fprintf(&out, "Values are medians over the runs; ratios are medians of the ratios within a run. ↑ more is better, ↓ less is.\n\n")
	r.table(&out)
	fmt.Fprintf(&out, "\n![throughput](throughput.svg)\n\n![latency](latency.svg)\n")
	programTable(&out, r.program)
	return out.String()
}

func (r report) table(out *strings.Builder) {
	head := append([]string{"path", "measured", "unit"}, r.settings...)
	for _, c := range r.comparisons() {
		head = append(head, c.setting+" ÷ "+c.base)
	}
	line(out, head)
	line(out, slices.Repeat([]string{"---"}, len(head)))
	for _, m := range r.metrics {
		cells := []string{m.path, m.name, m.unit + map[direction]string{higher: " ↑", lower: " ↓"}[m.better]}
		for _, setting := range r.settings {
			cells = append(cells, number(median(r.values[m][setting])))
		}
		for _, c := range r.comparisons() {
			cells = append(cells, quotient(ratio(r.values[m][c.setting], r.values[m][c.base])))
		}
		line(out, cells)
	}
}

func line(out *strings.Builder, cells []string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// number prints three significant digits, and whole numbers from a hundred on.
func number(value float64) string {
	switch {
	case value == 0:
		return "0"
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func quotient(value float64) string {
	if value == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", value)
}

// files are the table and the charts, by name.
func (r report) files() map[string]string {
	return map[string]string{
		"results.md":     r.markdown(),
		"throughput.svg": r.chart("Bulk TCP, Gbit/s", func(m metric) bool { return m.unit == "Gbit/s" }),
		"latency.svg":    r.chart("Request/response, µs", func(m metric) bool { return m.unit == "µs" }),
	}
}

// writeFiles writes into a folder; no folder, nothing.
func writeFiles(dir string, files map[string]string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
