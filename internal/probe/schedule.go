package probe

import (
	"cmp"
	"container/heap"
	"time"
)

const (
	// perPeer is the share of a peer in the interval: with more than 1,000 it grows, so that no more than
	// 100 requests per second are sent, and as many answered.
	perPeer = 10 * time.Millisecond

	defaultRequests = 200
	defaultAnswers  = 400
	// answersToOne and answersAtOnce bound what one peer can make this node do: ten times what one asks that
	// is not confirmed yet, and a whole search for a size at once.
	answersToOne  = 20
	answersAtOnce = 40
)

// Interval returns the pause between requests to each of so many confirmed peers: 10 s, and 10 ms for each
// when there are more than 1,000. At 5,000 it is 50 s, and one that died is stale after about a minute.
func Interval(peers int) time.Duration { return max(defaultInterval, time.Duration(peers)*perPeer) }

// ScheduleOptions bound what all peers together may cost. The zero value is meant for thousands.
type ScheduleOptions struct {
	// Requests per second; 0: 200. What is due beyond that waits its turn.
	Requests int
	// Answers per second, to all peers; 0: 400. One peer gets 20. Requests beyond that are passed over.
	Answers int
}

// Schedule asks many peers at a bounded rate: who has been due longest comes first. The key is the caller's name
// for a peer. It is not safe for concurrent use.
type Schedule[K comparable] struct {
	peers    map[K]*turn[K]
	queue    queue[K]
	queued   uint64
	requests bucket
	answers  bucket
}

// Due is a peer whose time had come.
type Due[K comparable] struct {
	Key K
	// Sends to the peer; none when only its State may be another now.
	Sends []Send
}

// turn is a peer's place in the queue.
type turn[K comparable] struct {
	key     K
	peer    *Peer
	due     time.Duration
	order   uint64 // among those that are due at the same time
	index   int    // in the heap
	answers bucket
}

// NewSchedule returns one without peers.
func NewSchedule[K comparable](o ScheduleOptions) *Schedule[K] {
	requests, answers := cmp.Or(o.Requests, defaultRequests), cmp.Or(o.Answers, defaultAnswers)
	return &Schedule[K]{
		peers:    map[K]*turn[K]{},
		requests: newBucket(requests, max(requests/10, 1)),
		answers:  newBucket(answers, answers),
	}
}

// Put adds a peer, or replaces the one of that key.
func (s *Schedule[K]) Put(key K, peer *Peer) {
	s.Remove(key)
	t := &turn[K]{key: key, peer: peer, due: peer.Next(), order: s.order(), answers: newBucket(answersToOne, answersAtOnce)}
	s.peers[key] = t
	heap.Push(&s.queue, t)
}

// Remove forgets a peer; one that is not there is no error.
func (s *Schedule[K]) Remove(key K) {
	if t, ok := s.peers[key]; ok {
		delete(s.peers, key)
		heap.Remove(&s.queue, t.index)
	}
}

// Len returns the number of peers.
func (s *Schedule[K]) Len() int { return len(s.peers) }

// Do calls f with the peer of that key, and takes into account what f made it want. It reports whether there is one.
func (s *Schedule[K]) Do(key K, f func(*Peer)) bool {
	t, ok := s.peers[key]
	if ok {
		f(t.peer)
		s.requeue(t)
	}
	return ok
}

// Request returns the peer's answer to a request, as Peer.Request does. It is false, and the request has no effect,
// when there is no such peer, or when it or all of them ask too often.
func (s *Schedule[K]) Request(now time.Duration, key K, m Message, fragment int) (answer Message, ok bool) {
	t, ok := s.peers[key]
	// The peer's own bucket first, so that one that floods takes no more than its share of the common one.
	if !ok || !t.answers.allow(now) || !s.answers.allow(now) {
		return Message{}, false
	}
	answer = t.peer.Request(now, m, fragment)
	s.requeue(t)
	return answer, true
}

// Tick returns the peers that are due, as many as the rate allows.
func (s *Schedule[K]) Tick(now time.Duration) []Due[K] {
	var due []Due[K]
	for len(s.queue) > 0 && s.queue[0].due <= now && s.requests.ready() <= now {
		t := s.queue[0]
		sends := t.peer.Tick(now)
		s.requests.take(now, len(sends))
		s.requeue(t)
		due = append(due, Due[K]{Key: t.key, Sends: sends})
	}
	return due
}

// Next returns when Tick has something to do; about 292 years on the clock when there is nobody.
func (s *Schedule[K]) Next() time.Duration {
	if len(s.queue) == 0 {
		return never
	}
	return max(s.queue[0].due, s.requests.ready())
}

// requeue gives a peer its place among the others, after something happened to it.
func (s *Schedule[K]) requeue(t *turn[K]) {
	t.due, t.order = t.peer.Next(), s.order()
	heap.Fix(&s.queue, t.index)
}

func (s *Schedule[K]) order() uint64 {
	s.queued++
	return s.queued
}

// queue is a heap by due time.
type queue[K comparable] []*turn[K]

func (q queue[K]) Len() int { return len(q) }

func (q queue[K]) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].due, q[j].due), cmp.Compare(q[i].order, q[j].order)) < 0
}

func (q queue[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue[K]) Push(t any) {
	last := t.(*turn[K])
	last.index = len(*q)
	*q = append(*q, last)
}

// Pop is for package heap.
func (q *queue[K]) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}
