package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"warren/internal/lab/netns"
)

// Dial connects to an address as seen from the plane's namespace: "127.0.0.1:2379" is its etcd.
func (p *Plane) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	var dialer net.Dialer
	if p.Options.Namespace == "" {
		return dialer.DialContext(ctx, network, address)
	}
	err = netns.Do(p.Options.Namespace, func() (err error) {
		connection, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// get asks for a page as the administrator; nil is an answer that says yes.
func (p *Plane) get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	transport, err := p.Transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12))
		return fmt.Errorf("%s says %s: %s", url, response.Status, bytes.TrimSpace(text))
	}
	return nil
}

// Transport connects from inside the plane's namespace, shows the administrator's certificate and trusts the plane's
// authority alone. Error: the certificates cannot be read.
func (p *Plane) Transport() (*http.Transport, error) {
	admin, err := tls.LoadX509KeyPair(p.keys.path(adminName+".crt"), p.keys.path(adminName+".key"))
	if err != nil {
		return nil, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	authority, err := os.ReadFile(p.keys.path("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &http.Transport{DialContext: p.Dial, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{admin}, RootCAs: pool}}, nil
}

// Kubectl runs kubectl in the plane's namespace as its administrator, with an input for those commands
// that read one, and returns what it prints. The error has what it says.
func (p *Plane) Kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	command := p.command("kubectl", append([]string{"--kubeconfig=" + p.Admin()}, arguments...)...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := p.inside(command); err != nil {
		return "", fmt.Errorf("run kubectl: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	defer stop()
	if err := command.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), errors.Join(ctx.Err(), err), bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
