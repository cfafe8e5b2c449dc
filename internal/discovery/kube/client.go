package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// listPatience is how long an answer to a list may take. A connection that is dead is noticed by the
// transport's pings.
const listPatience = time.Minute

// resource is what is read of one kind.
type resource struct {
	group     schema.GroupVersion
	plural    string
	namespace string // "" for what has none, and for all
	labels    string // selectors; "" for all
	fields    string
}

const (
	recordsPlural = "warrennodes"
	configsPlural = "warrenconfigs"
)

// client reaches the API groups through one set of connections.
type client map[schema.GroupVersion]rest.Interface

// connect returns a client. Without a kubeconfig it is the one that a pod's service account has. Nothing is
// sent yet.
func connect(kubeconfig string) (c client, server string, err error) {
	config, err := configFrom(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	config.UserAgent = fieldManager
	config.QPS = -1 // what is sent is paced here
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return telling{inner} })
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, "", err
	}
	c = client{}
	for group := range kinds {
		if c[group], err = clientFor(*config, group, connections); err != nil {
			return nil, "", err
		}
	}
	return c, config.Host, nil
}

func configFrom(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("this is no pod of a cluster; set kubernetes.kubeconfig")
		}
		return config, err
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

func clientFor(config rest.Config, group schema.GroupVersion, connections *http.Client) (rest.Interface, error) {
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.GroupVersion = &group
	return rest.RESTClientForConfigAndClient(&config, connections)
}

// lists returns how a reflector reads a resource. heard takes in how each request went.
func (c client) lists(r resource, heard func(error)) cache.ListerWatcher {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = r.labels, r.fields
		return c[r.group].Get().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.plural).
			VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0) // the reflector tries again
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			list, err := request(o).Do(ctx).Get()
			return list, answer(ctx, err, heard)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			var failed error
			w, err := request(o).Watch(context.WithValue(ctx, failure{}, &failed))
			if err == nil && failed != nil {
				err = failed // the library returns a watch of nothing when a connection was closed
			}
			return w, answer(ctx, err, heard)
		},
	}
}

// failure is the key of where a context wants to have the error of a connection.
type failure struct{}

// telling is a transport that says in the request's context what the library keeps to itself.
type telling struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t telling) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if to, ok := r.Context().Value(failure{}).(*error); ok {
		*to = err
	}
	return response, err
}

// answer notes how a request went, and returns what the reflector is to make of it. It would take up a watch where
// it was when a connection was refused; but whoever was away may have been restored from a backup, so
// that every failure is followed by a complete list. Only what says that a version is too old, or from
// another history, the reflector has to know.
func answer(ctx context.Context, err error, heard func(error)) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		heard(nil)
		return err
	}
	heard(err)
	return fmt.Errorf("%v", err)
}

// named selects the object of that name.
func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }
