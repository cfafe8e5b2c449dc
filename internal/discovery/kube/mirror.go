package kube

import (
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// mirror keeps what the objects of one resource say, decoded, by their keys. A reflector fills it; between a
// loss and the next complete list it stays as it is.
type mirror[T any] struct {
	// decode returns what an object says. before is what the object of that key said until now.
	decode func(o *object, before T) T
	// changed is called after every change.
	changed func()

	mu    sync.Mutex
	items map[string]T
	read  bool
}

var _ cache.TransformingStore = (*mirror[int])(nil)

// Replace implements cache.ReflectorStore: list is all there is.
func (m *mirror[T]) Replace(list []any, _ string) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.items
	m.items, m.read = make(map[string]T, len(list)), true
	for _, o := range list {
		key := keyOf(o)
		m.items[key] = m.decode(o.(*object), before[key])
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(o any) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(o)
	m.items[key] = m.decode(o.(*object), m.items[key])
	return nil
}

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(o any) error { return m.Add(o) }

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(o any) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.items, keyOf(o))
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror[T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore.
func (m *mirror[T]) Transformer() cache.TransformFunc { return slim }

// all returns what is there, and whether it was read at all.
func (m *mirror[T]) all() (items map[string]T, read bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.items), m.read
}

// one returns what the object of that key says; there is false when there is none.
func (m *mirror[T]) one(key string) (item T, there, read bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, there = m.items[key]
	return item, there, m.read
}

// keyOf returns "namespace/name", or "name" of what has no namespace.
func keyOf(o any) string {
	return cache.MetaObjectToName(o.(*object)).String()
}
