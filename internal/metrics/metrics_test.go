package metrics

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// scrape returns the status and the lines of a scrape.
func scrape(t *testing.T, snapshot func(context.Context) (Snapshot, error)) (int, string) {
	t.Helper()
	server := httptest.NewServer(Handler(snapshot))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestScrapeShowsTheSnapshot(t *testing.T) {
	code, text := scrape(t, func(context.Context) (Snapshot, error) {
		return Snapshot{
			Version: "v1", Engine: "kernel", Mode: "strict", Ready: true, Entries: 7, KeyEpoch: 2,
			Peers: []Peer{
				{Node: "n2", Received: 1, Sent: 2, LastHandshake: time.Unix(1700000000, 0), State: "confirmed", RTT: 3 * time.Millisecond, Loss: 0.5, MTU: 1440},
				{Node: "n3", State: "configured"},
			},
			Reasons:     []Reason{{"to_netdev", "redirected", 5, 500}},
			PeerReasons: []PeerReason{{"n2", "from_netdev", "clear_from_peer", 4, 40}},
			Maps:        []Map{{"ipcache.max-addresses", 7, 65536}},
			Failures:    map[string]uint64{"device": 2},
		}, nil
	})
	if code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	for _, want := range []string{
		`warren_build_info{engine="kernel",mode="strict",version="v1"} 1`, "warren_ready 1", "warren_discovery_synced 0", "warren_ipcache_entries 7",
		`warren_peer_received_bytes_total{node="n2"} 1`, `warren_peer_sent_bytes_total{node="n2"} 2`, `warren_peer_handshake_timestamp_seconds{node="n2"} 1.7e+09`,
		`warren_peer_handshake_timestamp_seconds{node="n3"} 0`, `warren_peer_state{node="n3",state="configured"} 1`, `warren_peer_rtt_seconds{node="n2"} 0.003`,
		`warren_peer_probe_loss_ratio{node="n2"} 0.5`, `warren_peer_mtu_bytes{node="n2"} 1440`,
		`warren_datapath_packets_total{program="to_netdev",reason="redirected"} 5`, `warren_datapath_bytes_total{program="to_netdev",reason="redirected"} 500`,
		`warren_peer_datapath_packets_total{node="n2",program="from_netdev",reason="clear_from_peer"} 4`,
		`warren_map_entries{option="ipcache.max-addresses"} 7`, `warren_map_max_entries{option="ipcache.max-addresses"} 65536`, `warren_failures_total{step="device"} 2`,
		"warren_key_epoch 2", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestScrapeFailsWithTheAgent: metrics that stand still would look like health.
func TestScrapeFailsWithTheAgent(t *testing.T) {
	code, text := scrape(t, func(context.Context) (Snapshot, error) { return Snapshot{}, errors.New("the loop is stuck") })
	if code != http.StatusInternalServerError || !strings.Contains(text, "the loop is stuck") {
		t.Errorf("status %d: %s", code, text)
	}
}
