package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// fieldManager is who writes, as managed fields and the API server's log show it.
const fieldManager = "warren-agent"

// writePatience is how long an answer to a write may take.
const writePatience = 10 * time.Second

// desk is what this machine wants to have in the API, and what became of it.
type desk struct {
	turn chan struct{} // has one element while something is written

	mu     sync.Mutex
	record keeping
	// published is the last record that Publish was given: what shares no key with it is another machine's.
	published *cluster.Node
	report    *discovery.Report
	reported  time.Time // the status is not written before
}

// Publish implements discovery.Publisher. The record is written by Run; while it is, for a few seconds, it is no
// error that it is not there yet.
func (k *Kube) Publish(ctx context.Context, node cluster.Node) error {
	if err := k.publish(ctx, node); err != nil {
		return fmt.Errorf("publish the record of %s: %w", node.ID, err)
	}
	return nil
}

func (k *Kube) publish(ctx context.Context, node cluster.Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if node.ID != k.self {
		return fmt.Errorf("this machine is %s", k.self)
	}
	wanted, problems := decodeRecord(node.ID.Name, encode(specOf(node)))
	if err := problems.Err(); err != nil {
		return err // nothing is written that would not be read
	}
	seen, now := k.own(), time.Now()
	k.desk.mu.Lock()
	k.desk.record, k.desk.published = k.desk.record.want(wanted, seen, now), &wanted
	err := k.desk.record.err(seen, now)
	k.desk.mu.Unlock()
	k.changed()
	return err
}

// Report implements discovery.Reporter.
func (k *Kube) Report(report discovery.Report) {
	k.desk.mu.Lock()
	k.desk.report = &report
	k.desk.mu.Unlock()
	k.changed()
}

// Withdraw implements discovery.Publisher. It waits for the API server, and needs no Run. A record that shares no key
// with what was published is left, and an error; when nothing was published, the name decides.
func (k *Kube) Withdraw(ctx context.Context) error {
	k.desk.mu.Lock()
	published := k.desk.published
	k.desk.mu.Unlock()
	err := k.inTurn(ctx, func(ctx context.Context) error {
		if err := k.withdraw(ctx, published); err != nil {
			return err
		}
		k.desk.mu.Lock()
		k.desk.record = keeping{}
		k.desk.mu.Unlock()
		return nil
	})
	if err != nil {
		return fmt.Errorf("withdraw the record of %s: %w", k.self, err)
	}
	return nil
}

func (k *Kube) withdraw(ctx context.Context, published *cluster.Node) error {
	if k.self.Name == "" {
		return errors.New("no machine was named")
	}
	var there object
	err := k.client[warrenAPIs].Get().Resource(recordsPlural).Name(k.self.Name).Do(ctx).Into(&there)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if node, problems := decodeRecord(there.Name, there.Spec); len(problems) == 0 && published != nil && !shareKey(node, *published) {
		return errors.New("the one that is there has another key; delete it by hand if it should go")
	}
	err = k.client[warrenAPIs].Delete().Resource(recordsPlural).Name(k.self.Name).
		Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(there.UID))}).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inTurn lets one thing be written at a time, and not for longer than writePatience.
func (k *Kube) inTurn(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	select {
	case k.desk.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.desk.turn }()
	return write(ctx)
}

// keep writes record and status whenever they are not as they should be, until ctx ends.
func (k *Kube) keep(ctx context.Context) {
	for {
		timer := time.NewTimer(k.keepOnce(ctx))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.toKeep:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// keepOnce writes what is due, and returns when to look again if nothing changes.
func (k *Kube) keepOnce(ctx context.Context) time.Duration {
	next := time.Minute
	seen, now := k.own(), time.Now()
	k.desk.mu.Lock()
	k.desk.record = k.desk.record.look(seen, now)
	kept := k.desk.record.kept
	wait, due := k.desk.record.due(seen, now)
	k.desk.mu.Unlock()
	switch {
	case due && wait == 0:
		k.writeRecord(ctx, seen)
		return pace
	case due:
		next = min(next, wait)
	case kept:
		next = min(next, k.keepStatus(ctx, seen, now))
	}
	return next
}

func (k *Kube) writeRecord(ctx context.Context, seen own) {
	_ = k.inTurn(ctx, func(ctx context.Context) error {
		k.desk.mu.Lock()
		wanted := k.desk.record.wanted
		k.desk.mu.Unlock()
		if wanted == nil {
			return nil // withdrawn while this waited for its turn
		}
		err := k.apply(ctx, "", map[string]any{
			"metadata": map[string]any{"name": k.self.Name, "ownerReferences": []metav1.OwnerReference{{
				APIVersion: core.String(), Kind: "Node", Name: k.self.Name, UID: seen.node.uid,
			}}},
			"spec": specOf(*wanted),
		})
		k.desk.mu.Lock()
		k.desk.record = k.desk.record.wrote(err, time.Now())
		k.desk.mu.Unlock()
		return err
	})
}

// keepStatus writes the status if it is to be written now, and returns when to look again.
func (k *Kube) keepStatus(ctx context.Context, seen own, now time.Time) time.Duration {
	k.desk.mu.Lock()
	report, reported := k.desk.report, k.desk.reported
	k.desk.mu.Unlock()
	if report == nil {
		return time.Minute
	}
	before := readStatus(seen.entry.status)
	config, _, _ := k.configs.one(configName)
	status := statusOf(*report, config.problems, before, now)
	if status.equal(before) {
		return time.Minute
	}
	if reported.IsZero() { // agents that start together do not write together
		reported = now.Add(rand.N(reportShare(report.Peers) + 1))
	} else if !now.Before(reported) {
		_ = k.inTurn(ctx, func(ctx context.Context) error {
			return k.apply(ctx, "status", map[string]any{"metadata": map[string]any{"name": k.self.Name}, "status": status})
		})
		pause := reportPause(report.Peers)
		reported = now.Add(pause + rand.N(pause/4))
	}
	k.desk.mu.Lock()
	k.desk.reported = reported
	k.desk.mu.Unlock()
	return time.Until(reported)
}

// apply makes the own object, or a part of it, say what is given, by server-side apply.
func (k *Kube) apply(ctx context.Context, part string, fields map[string]any) error {
	fields["apiVersion"], fields["kind"] = warrenAPIs.String(), kindNode
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	request := k.client[warrenAPIs].Patch(types.ApplyPatchType).MaxRetries(0).Resource(recordsPlural).Name(k.self.Name)
	if part != "" {
		request = request.SubResource(part)
	}
	return request.Param("fieldManager", fieldManager).Param("force", "true").Body(body).Do(ctx).Error()
}
