package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/api"
	"warren/internal/cluster"
)

func newStatus() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what this node encrypts, with whom, and what is wrong",
		Long: `Show the agent's state: device, underlay, peers, ways out of the datapath, and problems with
their remedies. The exit code is 0 when the agent is ready and 1 when it is not.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := q.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			return q.output.printVerdict(cmd.OutOrStdout(), status.Ready, status, func(w io.Writer) { printStatus(w, status, time.Now()) })
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printStatus(w io.Writer, s api.Status, now time.Time) {
	table(w,
		[]string{"node", s.Node + " (cluster " + s.Cluster + ")"},
		[]string{"ready", readiness(s)},
		[]string{"mode", modeAndSource(s) + ", ingress " + s.Ingress},
		[]string{"key", s.PublicKey + ", " + rotationLine(s.Rotation)},
		[]string{"addresses", listOr(s.Addresses, "none yet")},
		[]string{"prefixes", listOr(s.Prefixes, "none")},
		[]string{"exempt", cmp.Or(strings.Join(s.Exempt, ", "), "nothing")},
		[]string{"device", deviceLines(s)},
		[]string{"underlay", underlayLine(s.Underlay)},
		[]string{"ipcache", fmt.Sprintf("%d prefixes", s.Entries)},
		[]string{"agent", fmt.Sprintf("%s, pid %d, up %s", s.Version, s.PID, max(0, now.Sub(s.Started).Round(time.Second)))},
	)
	printProblems(w, s.Problems)
	printPeers(w, s, now)
	printReasons(w, s.Reasons)
}

func modeAndSource(s api.Status) string {
	if s.ModeSource == api.ModeCommanded {
		return s.Mode + " (by warren mode set)"
	}
	return s.Mode
}

func readiness(s api.Status) string {
	if s.Ready {
		return "yes"
	}
	return "no: " + strings.Join(s.NotReady, "; ")
}

// deviceLines are the device, and the names and ports of the others.
func deviceLines(s api.Status) string {
	line := deviceLine(s.Device)
	for _, d := range s.Devices {
		if d.Name != s.Device.Name {
			line += fmt.Sprintf("; %s, port %d", d.Name, d.Port)
		}
	}
	return line
}

func deviceLine(d api.Device) string {
	if d.Engine == "" {
		return d.Name + " (not there yet)"
	}
	return fmt.Sprintf("%s, %s WireGuard, port %d, mark %s, MTU %d", d.Name, d.Engine, d.Port, d.Mark, d.MTU)
}

func underlayLine(devices []api.Underlay) string {
	var parts []string
	for _, u := range devices {
		attach := u.Attach
		if attach == "" {
			attach = "NOT ATTACHED"
		}
		parts = append(parts, fmt.Sprintf("%s (%s, MTU %d)", u.Name, attach, u.MTU))
	}
	return listOr(parts, "none yet")
}

func printProblems(w io.Writer, problems []api.Problem) {
	if len(problems) == 0 {
		return
	}
	fmt.Fprintln(w, "\nPROBLEMS")
	for _, p := range problems {
		fmt.Fprintf(w, "  %s: %s\n", p.Where, strings.ReplaceAll(p.Message, "\n", "\n    "))
		if p.Remedy != "" {
			fmt.Fprintf(w, "    remedy: %s\n", p.Remedy)
		}
	}
}

func printPeers(w io.Writer, s api.Status, now time.Time) {
	rows := [][]string{{"PEER", "STATE", "ENDPOINT", "KEY", "RTT", "MTU", "HANDSHAKE", "RECEIVED", "SENT", "ALLOWED IPS"}}
	for _, p := range s.Peers {
		rows = append(rows, []string{
			p.Node, peerState(p, s.Mode), p.Endpoint, p.PublicKey[:min(8, len(p.PublicKey))] + "…", roundTrip(p), peerMTU(p), handshake(p, now),
			byteCount(p.ReceivedBytes), byteCount(p.SentBytes), abbreviate(p.AllowedIPs, 4),
		})
	}
	fmt.Fprintln(w)
	if len(s.Peers) == 0 {
		fmt.Fprintln(w, "no peers: no other node has published a record that this one admits")
		return
	}
	table(w, rows...)
}

// peerState is the state, and what is not as it should be on a node of that mode.
func peerState(p api.Peer, mode string) string {
	switch {
	case !p.Encrypting && mode == cluster.ModeStrict.String():
		return p.State + ", DROPPED"
	case !p.Encrypting:
		return p.State + ", IN CLEAR"
	case p.Mode != "" && p.Mode != "permissive":
		return p.State + ", " + p.Mode
	}
	return p.State
}

func roundTrip(p api.Peer) string {
	if p.RTT == 0 {
		return "-"
	}
	if p.Loss > 0 {
		return fmt.Sprintf("%.2f ms, %.0f %% lost", p.RTT, 100*p.Loss)
	}
	return fmt.Sprintf("%.2f ms", p.RTT)
}

// peerMTU is the largest packet in the tunnel, and what the path between the two carries.
func peerMTU(p api.Peer) string {
	if p.PathMTU == 0 {
		return strconv.Itoa(p.MTU)
	}
	return fmt.Sprintf("%d (path %d)", p.MTU, p.PathMTU)
}

func handshake(p api.Peer, now time.Time) string {
	switch {
	case !p.Installed:
		return "not installed"
	case p.LastHandshake == nil:
		return "never"
	}
	age := now.Sub(*p.LastHandshake).Round(time.Second)
	if age < 0 {
		return "before the clock was set back"
	}
	return age.String() + " ago"
}

// abbreviate joins at most n of the parts and says how many more there are.
func abbreviate(parts []string, n int) string {
	if len(parts) <= n {
		return strings.Join(parts, " ")
	}
	return fmt.Sprintf("%s (+%d)", strings.Join(parts[:n], " "), len(parts)-n)
}

func printReasons(w io.Writer, reasons []api.Reason) {
	rows := [][]string{{"PROGRAM", "WAY OUT", "PACKETS", "BYTES", "MEANING"}}
	for _, r := range reasons {
		if r.Packets == 0 {
			continue
		}
		rows = append(rows, []string{r.Program, r.Reason, strconv.FormatUint(r.Packets, 10), byteCount(r.Bytes), r.Description})
	}
	if len(rows) > 1 {
		fmt.Fprintln(w)
		table(w, rows...)
	}
}
