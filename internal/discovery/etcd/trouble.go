package etcd

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"warren/internal/discovery"
)

// isRefusal reports whether etcd has answered a request and will do so again: nothing is gained by asking it
// through another connection.
func isRefusal(err error) bool {
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrRequestTooLarge} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// problemOf says why there is no session.
func (r *run) problemOf(err error) *discovery.Problem {
	p := discovery.Problem{Where: strings.Join(r.Endpoints, ",")}
	since, kept := r.since.UTC().Format(time.RFC3339), "; the records of before are kept meanwhile"
	var file *fileError
	switch {
	case errors.As(err, &file):
		p.Where, p.Message = file.path, fmt.Sprintf("no session with etcd since %s: %v", since, file.err)
		p.Remedy = "put the right file there; it is read again" + kept
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		p.Message = fmt.Sprintf("etcd does not let this node read, since %s", since)
		p.Remedy = fmt.Sprintf("let a role of its user do it: etcdctl role grant-permission ROLE read --prefix %s%s", r.layout.all(), kept)
	case isUnknown(err):
		p.Message = fmt.Sprintf("etcd does not know this node, since %s: %s", since, cause(err))
		p.Remedy = "etcdctl user add, or correct etcd.user and its password, or the certificate" + kept
	default:
		p.Message = fmt.Sprintf("no session with etcd since %s: %s", since, cause(err))
		p.Remedy = "see whether it runs, has a quorum, and can be reached from here" + kept
	}
	return &p
}

// isUnknown reports whether etcd does not take this machine for one of its users.
func isUnknown(err error) bool {
	for _, known := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthOldRevision,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// unwritten says why the own key cannot be written.
func unwritten(key string, err error) discovery.Problem {
	p := discovery.Problem{
		Where: key, Message: "this machine's record cannot be written: " + cause(err),
		Remedy: "until it can, other machines do not have it",
	}
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		p.Remedy = fmt.Sprintf("let a role of this node's user do it: etcdctl role grant-permission ROLE readwrite %s; %s", key, p.Remedy)
	case errors.Is(err, rpctypes.ErrNoSpace):
		p.Remedy = "compact and defragment etcd, or raise its quota, and disarm the alarm; " + p.Remedy
	}
	return p
}

var nested = regexp.MustCompile(`^.*desc = "(?:transport: )?(.*?)"?$`)

// cause returns what is left of an error of a connection without the layers around it.
func cause(err error) string {
	text := rpctypes.ErrorDesc(err)
	if inner := nested.FindStringSubmatch(text); inner != nil {
		return strings.ReplaceAll(inner[1], `\"`, `"`)
	}
	return strings.TrimPrefix(text, "etcdserver: ")
}
