package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// Modes of kube-proxy.
const (
	iptables = "iptables"
	nftables = "nftables"
)

// proxy runs kube-proxy on every node, in the given mode and in no other.
func (c *cluster) proxy(ctx context.Context, mode string) error {
	kubeconfig, err := c.plane.Kubeconfig(control.Client{User: "system:kube-proxy"})
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.take(kubeconfig, configDir+"/proxy.kubeconfig"); err != nil {
			return err
		}
		if err := n.write(configDir+"/proxy.yaml", c.proxyConfig(n, mode)); err != nil {
			return err
		}
		if err := n.startProxy(ctx); err != nil {
			return err
		}
	}
	return nil
}

// proxyConfig: what kube-proxy would set for the whole machine, in its table of connections, it leaves alone.
func (c *cluster) proxyConfig(n *node, mode string) string {
	var pods []string
	for _, prefix := range podPrefixes {
		pods = append(pods, prefix.String())
	}
	return object(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": mode, "clusterCIDR": strings.Join(pods, ","), "hostnameOverride": n.Name,
		"clientConnection": map[string]any{"kubeconfig": configDir + "/proxy.kubeconfig"},
		"conntrack":        map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
}

// startProxy replaces the kube-proxy of a node, and the rules of the one before.
func (n *node) startProxy(ctx context.Context) error {
	if err := n.end("kube-proxy"); err != nil {
		return err
	}
	if _, err := n.do("kube-proxy", "--cleanup"); err != nil {
		return err
	}
	if err := n.start(proxyLog, "kube-proxy", "--config="+configDir+"/proxy.yaml", "--v=2"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return n.await(ctx, proxyLog, func() error {
		_, err := get(n.Namespace, "http://127.0.0.1:10256/healthz")
		return err
	})
}

// get asks a web server from inside a network namespace, over a connection of its own.
func get(namespace, url string) (answer string, err error) {
	dial := func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		err = netns.Do(namespace, func() (err error) {
			connection, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return connection, err
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s says %s: %s", url, response.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}
