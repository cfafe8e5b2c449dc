package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"warren/internal/discovery"
)

// pingAfter is how long a connection may be silent before it is asked whether it is still there: that of the
// watch is, and need not be the one that renewals take. Members refuse less than 5 s.
const pingAfter = 20 * time.Second

// retries, 25 ms apart, are how often etcd is asked again that cannot be reached or has no leader.
const retries = 40

// failFast has a request fail with the reason why there is no connection. The client of etcd would wait for one, and
// say that time is over.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// connect prepares a client with what the files say now, and says where it will go. The network is used by its
// first request.
func (r *run) connect(ctx context.Context) (*clientv3.Client, error) {
	r.announce(ctx)
	password, err := r.password()
	if err != nil {
		return nil, err
	}
	encryption, err := r.tls()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: r.Endpoints, TLS: encryption, Username: r.User, Password: password, Context: ctx, Logger: zap.NewNop(),
		DialTimeout: patience, DialKeepAliveTime: pingAfter, DialKeepAliveTimeout: patience, MaxUnaryRetries: retries,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the connection: %w", err)
	}
	return client, nil
}

// fileError is a file that cannot be used.
type fileError struct {
	path string
	err  error
}

func (e *fileError) Error() string { return e.path + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err == nil && len(text) == 0 {
		err = errors.New("the file is empty")
	}
	if detail := (*os.PathError)(nil); errors.As(err, &detail) {
		err = detail.Err // the rest has the path again
	}
	if err != nil {
		return nil, &fileError{path, err}
	}
	return text, nil
}

func (e *Etcd) password() (string, error) {
	if e.PasswordFile == "" {
		return "", nil
	}
	text, err := readFile(e.PasswordFile)
	return strings.TrimRight(string(text), "\r\n"), err
}

// tls returns how the members are met, nil when none wants encryption.
func (e *Etcd) tls() (*tls.Config, error) {
	if !slices.ContainsFunc(e.Endpoints, func(u string) bool { return strings.HasPrefix(u, "https:") }) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CAFile != "" {
		text, err := readFile(e.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, &fileError{e.CAFile, errors.New("there is no certificate in it")}
		}
	}
	if e.CertFile == "" {
		return config, nil
	}
	if _, err := e.certificate(nil); err != nil {
		return nil, err
	}
	config.GetClientCertificate = e.certificate
	return config, nil
}

// certificate reads the certificate for each connection anew, since it may live for hours.
func (e *Etcd) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	text, err := readFile(e.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := readFile(e.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(text, key)
	if err != nil {
		return nil, &fileError{e.CertFile, err}
	}
	return &pair, nil
}

// announce emits where etcd is reached. A name that is not known says nothing; that it is not is the connection's
// problem.
func (r *run) announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var now []netip.AddrPort
	for _, endpoint := range r.Endpoints {
		now = append(now, discovery.Reach(ctx, endpoint)...)
	}
	slices.SortFunc(now, netip.AddrPort.Compare)
	now = slices.Compact(now)
	if len(now) > 0 && !slices.Equal(now, r.servers) {
		r.servers = now
		r.emit(discovery.Event{Kind: discovery.Servers, Servers: now})
	}
}
