// Package admin is who may do everything at the API server of a test: its requests, and the WarrenNodes of nodes that
// nobody runs.
//
//	client, err := admin.Connect(plane)
//	err = client.MakeMany(0, 1000)
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"warren/internal/lab/control"
)

// patience is how long a request may take on a machine that has other work.
const patience = 60 * time.Second

// Client sends requests to an API server as one of its administrators. It may be used by several goroutines.
type Client struct {
	// Base is where the API server is: "https://10.10.0.1:6443".
	Base string
	// Transport shows the certificate, and connects from inside the API server's namespace.
	Transport *http.Transport
}

// Connect makes a client. Nothing is sent yet.
func Connect(plane *control.Plane) (*Client, error) {
	transport, err := plane.Transport()
	if err != nil {
		return nil, err
	}
	transport.ForceAttemptHTTP2 = true // many requests on one connection
	return &Client{Base: "https://" + plane.Server().String(), Transport: transport}, nil
}

// Try sends a request, whose body is JSON, that of a patch one that merges, and returns the answer whatever its status is.
func (c *Client) Try(method, path string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.Transport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// Do sends a request that has to succeed, and returns the answer.
func (c *Client) Do(method, path string, body any) ([]byte, error) {
	status, answer, err := c.Try(method, path, body)
	if err == nil && status >= 300 {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}
