package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update writes it:\n%s", path, diff)
	}
}

// sample is a report of two runs.
func sample(baseline bool) report {
	settings := []setting{inClear{}, plainWireGuard(""), warrenEngine(""), warren{}}
	if baseline {
		settings = append(settings, warrenEngine(""), warren{})
	}
	r := report{machine: []string{"a machine"}, runs: 2, seconds: 3, settings: names(settings),
		program: []programFigure{{"world", "1000", "42.00"}}}
	for run := range 2 {
		for i, name := range r.settings {
			speed := 10 / float64(1+i+run)
			r.add(name, []figure{
				{metric{"host → host", "TCP, 1 stream", "Gbit/s", higher}, speed},
				{metric{"host → host", "request/response, p50", "µs", lower}, 100 / speed},
				{metric{"host → host", "TCP, 1 stream, CPU of the tunnel processes", "s/GiB", lower}, float64(i)},
			})
		}
	}
	return r
}

func TestReport(t *testing.T) {
	for name, text := range sample(false).files() {
		golden(t, name, text)
	}
	golden(t, "baseline.md", sample(true).markdown())
	golden(t, "baseline.svg", sample(true).files()["throughput.svg"])
}

func TestChartIsXML(t *testing.T) {
	for name, text := range sample(true).files() {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

func TestMedianAndRatio(t *testing.T) {
	tests := []struct {
		name          string
		values, base  []float64
		median, ratio float64
	}{
		{"nothing", nil, nil, 0, 0},
		{"one", []float64{3}, []float64{2}, 3, 1.5},
		{"odd", []float64{9, 1, 4}, []float64{9, 1, 2}, 4, 1},
		{"even", []float64{1, 2, 3, 10}, []float64{1, 1, 1, 1}, 2.5, 2.5},
		{"a run in which everything was slow", []float64{1, 10, 10}, []float64{2, 20, 20}, 10, 0.5},
		{"nothing to divide by", []float64{1}, []float64{0}, 1, 0},
	}
	for _, test := range tests {
		if got := median(test.values); got != test.median {
			t.Errorf("%s: median %v, want %v", test.name, got, test.median)
		}
		if got := ratio(test.values, test.base); got != test.ratio {
			t.Errorf("%s: ratio %v, want %v", test.name, got, test.ratio)
		}
	}
}
