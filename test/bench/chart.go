package main

import (
	"fmt"
	"html"
	"strings"
)

// Measures of a chart, in pixels.
const (
	chartWidth   = 760
	chartLabels  = 250 // left of the bars
	chartNumbers = 60  // right of the longest bar
	barHeight    = 16
	groupGap     = 14
	legendTop    = 34
	legendLine   = 18
	legendColumn = (chartWidth - 16) / measured
)

// palette is readable on a light and on a dark ground, also without telling red from green; the text is of a
// middle grey.
var palette = []string{"#9aa0a6", "#d98a1f", "#2a9d7c", "#2f8fd0", "#cc79a7", "#7a5cc2"}

const chartText = "#7d838a"

// chart draws the medians of some metrics as bars: a group for each metric, a bar for each setting.
func (r report) chart(title string, choose func(metric) bool) string {
	var rows []metric
	var longest float64
	for _, m := range r.metrics {
		if !choose(m) {
			continue
		}
		rows = append(rows, m)
		for _, setting := range r.settings {
			longest = max(longest, median(r.values[m][setting]))
		}
	}
	group := len(r.settings)*barHeight + groupGap
	var out strings.Builder
	top := legendTop + (len(r.settings)+measured-1)/measured*legendLine + 12
	height := top + len(rows)*group
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="%s">`+"\n",
		chartWidth, height, chartText)
	text(&out, 8, 20, `font-size="15"`, title)
	r.legend(&out)
	for i, m := range rows {
		r.bars(&out, m, top+i*group, longest)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// legend names the colours: the measured settings in one line, those of the baseline in the next.
func (r report) legend(out *strings.Builder) {
	for i, setting := range r.settings {
		x, y := 8+i%measured*legendColumn, legendTop+i/measured*legendLine
		rectangle(out, x, y, 12, i)
		text(out, x+18, y+11, "", setting)
	}
}

// bars draws the group of one metric.
func (r report) bars(out *strings.Builder, m metric, y int, longest float64) {
	text(out, 8, y+len(r.settings)*barHeight/2+4, "", m.path+": "+m.name)
	for i, setting := range r.settings {
		value := median(r.values[m][setting])
		width := 0
		if longest > 0 {
			width = int(value / longest * (chartWidth - chartLabels - chartNumbers))
		}
		rectangle(out, chartLabels, y+i*barHeight, width, i)
		text(out, chartLabels+width+6, y+i*barHeight+12, "", number(value))
	}
}

func rectangle(out *strings.Builder, x, y, width, series int) {
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, width, barHeight-3, palette[series%len(palette)])
}

func text(out *strings.Builder, x, y int, attributes, words string) {
	fmt.Fprintf(out, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(words))
}
