package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrNotRunning says that no agent listens on the socket.
var ErrNotRunning = errors.New("no agent is running")

// ErrNotFound says that the agent knows nothing of what was asked for.
var ErrNotFound = errors.New("not found")

// Client talks to the agent behind one socket. It is safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
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
	return &Client{socket: socket, http: http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// Status returns the agent's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status")
}

// Nodes returns every node record, refused ones included.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) { return get[[]Node](ctx, c, "/v1/nodes") }

// Entries returns the whole IPCache in prefix order.
func (c *Client) Entries(ctx context.Context) ([]Entry, error) {
	return get[[]Entry](ctx, c, "/v1/ipcache")
}

// Entry returns what is known of one address; ErrNotFound when no prefix covers it.
func (c *Client) Entry(ctx context.Context, addr netip.Addr) (EntryDetail, error) {
	return get[EntryDetail](ctx, c, "/v1/ipcache/"+addr.String())
}

// Failure is the body of every answer that is not a success.
type Failure struct {
	Error string `json:"error"`
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var value T
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return value, fmt.Errorf("ask the agent: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return value, c.unreachable(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return value, refusal(response)
	}
	if err := json.NewDecoder(response.Body).Decode(&value); err != nil {
		return value, fmt.Errorf("read the agent's answer to %s: %w", path, err)
	}
	return value, nil
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
