//go:build !noetcd

package agent

import (
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery/etcd"
)

func init() {
	engines[config.DiscoveryEtcd] = func(c config.Config, self cluster.NodeID) (engine, error) {
		o := c.Etcd
		e, err := etcd.New(etcd.Options{
			Endpoints: o.Endpoints, Prefix: o.Prefix, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile,
			User: o.User, PasswordFile: o.PasswordFile, Lease: o.Lease.Duration, Self: self,
		})
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}
