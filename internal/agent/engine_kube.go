//go:build !nokube

package agent

import (
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery/kube"
)

func init() {
	engines[config.DiscoveryKubernetes] = func(c config.Config, self cluster.NodeID) (engine, error) {
		k, err := kube.New(kube.Options{Kubeconfig: c.Kubernetes.Kubeconfig, Self: self})
		if err != nil {
			return nil, err
		}
		return k, nil
	}
}
