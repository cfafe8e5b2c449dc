// Package deploy is what is shipped for clusters, for programs that install it themselves.
package deploy

import _ "embed" // the manifest

// Manifest is everything that Kubernetes needs to run Warren, as `kubectl apply` reads it: YAML documents in the order in
// which they are to be made.
//
//go:embed warren.yaml
var Manifest string
