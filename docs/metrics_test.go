package docs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"

	"warren/internal/metrics"
)

// metricsTable lists Warren's own metrics by scraping an agent that has one of everything.
func metricsTable() string {
	snapshot := metrics.Snapshot{
		Maps:        []metrics.Map{{Name: "ipcache.max-addresses", Entries: 4, Max: 65536}},
		Peers:       []metrics.Peer{{Node: "n2"}},
		Reasons:     []metrics.Reason{{Program: "to_netdev", Reason: "redirected"}},
		PeerReasons: []metrics.PeerReason{{Node: "n2", Program: "from_netdev", Reason: "clear_from_peer"}},
		Failures:    map[string]uint64{"peers": 0},
	}
	answer := httptest.NewRecorder()
	handler := metrics.Handler(func(context.Context) (metrics.Snapshot, error) { return snapshot, nil })
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return table([]string{"metric", "labels", "what it says, and what to do"}, metricRows(answer.Body.String()))
}

var label = regexp.MustCompile(`([a-z_]+)="`)

// metricRows reads the text format of Prometheus: HELP, TYPE, then samples.
func metricRows(exposition string) [][]string {
	var rows [][]string
	for line := range strings.Lines(exposition) {
		if help, ok := strings.CutPrefix(line, "# HELP warren_"); ok {
			name, text, _ := strings.Cut(strings.TrimSpace(help), " ")
			rows = append(rows, []string{"`warren_" + name + "`", "", text})
			continue
		}
		if strings.HasPrefix(line, "warren_") && len(rows) > 0 {
			var names []string
			for _, found := range label.FindAllStringSubmatch(line, -1) {
				names = append(names, "`"+found[1]+"`")
			}
			rows[len(rows)-1][1] = strings.Join(slices.Compact(names), ", ")
		}
	}
	return rows
}
