package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"warren/internal/cluster"
)

// answerTimeout bounds an answer; the agent gives up a little earlier.
const answerTimeout = 30 * time.Second

// ErrNotRunning says that no agent listens on the socket.
var ErrNotRunning = errors.New("no agent is running")

// ErrNotFound says that the agent knows nothing of what was asked for.
var ErrNotFound = errors.New("not found")

// Client talks to the agent behind one socket. It is safe for concurrent use.
type Client struct {
	socket    string
	transport *http.Transport
}

// Dial returns a client of the agent that listens on the socket. It connects with each request.
func Dial(socket string) *Client {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}
	return &Client{socket: socket, transport: transport}
}

// Status returns the agent's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status")
}

// Nodes returns every node record, refused ones included.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) { return get[[]Node](ctx, c, "/v1/nodes") }

// Forget lets go of the nodes whose records vanished together, and returns their names.
func (c *Client) Forget(ctx context.Context) ([]string, error) {
	return send[[]string](ctx, c, http.MethodPost, "/v1/nodes/forget", nil)
}

// Mode returns the node's mode.
func (c *Client) Mode(ctx context.Context) (Mode, error) { return get[Mode](ctx, c, "/v1/mode") }

// SetMode changes the node's mode, for good, and returns when it counts.
func (c *Client) SetMode(ctx context.Context, mode string) (Mode, error) {
	return send[Mode](ctx, c, http.MethodPut, "/v1/mode", Mode{Mode: mode})
}

// ResetMode makes the configured mode count again.
func (c *Client) ResetMode(ctx context.Context) (Mode, error) {
	return send[Mode](ctx, c, http.MethodDelete, "/v1/mode", nil)
}

// Leave makes the node leave the cluster, with so much patience for each stage, or returns how far it is.
func (c *Client) Leave(ctx context.Context, patience time.Duration) (Leave, error) {
	return send[Leave](ctx, c, http.MethodPost, "/v1/leave", LeaveRequest{PatienceSeconds: patience.Seconds()})
}

// Stay makes a node that leaves stay after all.
func (c *Client) Stay(ctx context.Context) (Leave, error) {
	return send[Leave](ctx, c, http.MethodDelete, "/v1/leave", nil)
}

// Filter selects entries; every field that is set must fit.
type Filter struct {
	// Node is the owner: its name, or cluster/name.
	Node string
	// Source is one that states a fact about the prefix itself.
	Source cluster.Source
	// Identity is nil for any.
	Identity *uint32
	// Conflict selects prefixes about which facts disagree.
	Conflict bool
}

// Entries returns the entries that fit the filter, in prefix order.
func (c *Client) Entries(ctx context.Context, filter Filter) ([]Entry, error) {
	return get[[]Entry](ctx, c, "/v1/ipcache?"+filter.Values().Encode())
}

// Values is the filter as a URL query.
func (f Filter) Values() url.Values {
	values := url.Values{}
	if f.Node != "" {
		values.Set("node", f.Node)
	}
	if f.Source != 0 {
		values.Set("source", f.Source.String())
	}
	if f.Identity != nil {
		values.Set("identity", strconv.FormatUint(uint64(*f.Identity), 10))
	}
	if f.Conflict {
		values.Set("conflict", "true")
	}
	return values
}

// ParseFilter is the inverse of Values.
func ParseFilter(values url.Values) (f Filter, err error) {
	f.Node, f.Conflict = values.Get("node"), values.Get("conflict") == "true"
	if text := values.Get("source"); text != "" {
		if f.Source, err = cluster.ParseSource(text); err != nil {
			return f, err
		}
	}
	if text := values.Get("identity"); text != "" {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return f, fmt.Errorf("identity %q is not a number", text)
		}
		identity := uint32(number)
		f.Identity = &identity
	}
	return f, nil
}

// Entry returns what is known of one address; ErrNotFound when no prefix covers it.
func (c *Client) Entry(ctx context.Context, addr netip.Addr) (EntryDetail, error) {
	return get[EntryDetail](ctx, c, "/v1/ipcache/"+addr.String())
}

// Conflicts returns the prefixes about which facts disagree.
func (c *Client) Conflicts(ctx context.Context) ([]Conflict, error) {
	return get[[]Conflict](ctx, c, "/v1/conflicts")
}

// Question is a packet to Explain. Protocol is "udp", "tcp" or "icmp"; Port is the destination's.
type Question struct {
	Source, Destination netip.Addr
	Protocol            string
	Port                uint16
}

// Explain returns what the datapath does with such a packet on this node, and why.
func (c *Client) Explain(ctx context.Context, q Question) (Explanation, error) {
	values := url.Values{
		"source": {q.Source.String()}, "destination": {q.Destination.String()},
		"protocol": {q.Protocol}, "port": {strconv.Itoa(int(q.Port))},
	}
	return get[Explanation](ctx, c, "/v1/explain?"+values.Encode())
}

// Watch calls each for every entry that there is, and then for every change, until ctx ends, each
// returns an error, or the agent ends (then the error is io.EOF).
func (c *Client) Watch(ctx context.Context, each func(Delta) error) error {
	response, err := c.open(ctx, request{path: "/v1/ipcache/watch"})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var delta Delta
		if err := decoder.Decode(&delta); err != nil {
			return err
		}
		if err := each(delta); err != nil {
			return err
		}
	}
}

// Failure is the body of every answer that is not a success.
type Failure struct {
	Error string `json:"error"`
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return send[T](ctx, c, http.MethodGet, path, nil)
}

// send sends a body, nil for none, and returns the answer.
func send[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var value T
	response, err := c.open(ctx, request{method, path, body, answerTimeout})
	if err != nil {
		return value, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&value); err != nil {
		return value, fmt.Errorf("read the agent's answer to %s: %w", path, err)
	}
	return value, nil
}

// request is what is asked. The zero timeout waits for as long as the context does.
type request struct {
	method, path string
	body         any
	timeout      time.Duration
}

// open asks and returns a successful answer.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("ask the agent: %w", err)
		}
		body = bytes.NewReader(text)
	}
	httpRequest, err := http.NewRequestWithContext(ctx, r.method, "http://agent"+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	client := http.Client{Transport: c.transport, Timeout: r.timeout}
	response, err := client.Do(httpRequest)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

func (c *Client) unreachable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w on %s: start it with 'warren agent', or name its run directory with --run-dir", ErrNotRunning, c.socket)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("open %s: permission denied; the agent's socket is for root", c.socket)
	}
	return fmt.Errorf("ask the agent on %s: %w", c.socket, err)
}

func refusal(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var failure Failure
	if json.Unmarshal(body, &failure) != nil || failure.Error == "" {
		failure.Error = response.Status
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %s", ErrNotFound, failure.Error)
	}
	return errors.New(failure.Error)
}
