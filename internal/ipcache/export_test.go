package ipcache

import "fmt"

// Held returns what a cache still holds of facts and shared values, for tests of an empty one.
func (c *Cache) Held() []string {
	var held []string
	count := func(what string, n int) {
		if n != 0 {
			held = append(held, fmt.Sprintf("%d %s", n, what))
		}
	}
	count("nodes", c.trie.nodes.live())
	count("records", c.records.live())
	count("facts", c.facts.live())
	count("label sets", len(c.labels.handles)+c.labels.items.live())
	count("owners", len(c.owners.handles)+c.owners.items.live())
	count("endpoints", len(c.endpoints.handles)+c.endpoints.items.live())
	count("resources", len(c.resources.handles)+c.resources.items.live())
	count("identities", c.identities.Len())
	count("conflicts", len(c.conflicted))
	count("entries", c.len)
	count("roots", int(c.trie.roots[0]+c.trie.roots[1]))
	return held
}

func (s *slab[T]) live() int { return int(s.used) - len(s.free) }
